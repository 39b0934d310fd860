"""What the fold law says a stream comes to, in plain Python: no buckets, batches or engines.

Per key, from the first instant to `until`: its events and its timeouts in the order of time,
data first at equal instants. Written from design.md, section 2.
"""

import math
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from include.fold.definition import KeyedFold
from tests.bronze import StampedRow


class Known(NamedTuple):
    """One key's state and timeout; None for what it does not have."""

    state: Any
    changed_at_us: int | None
    timeout_at_us: int | None


class Called(NamedTuple):
    """What one call of a state function came to."""

    outputs: list[Any]
    state: Any
    timeout_us: int | None


class Failed(NamedTuple):
    """A call that failed, in a stream that goes on all the same."""


class Rejected(NamedTuple):
    """What it was called for: an event, or None for a timeout."""

    key: Any
    at_us: int
    event: Any


class Result(NamedTuple):
    """Everything that must not depend on how input was cut."""

    table: Mapping[Any, Any]  # append: how often (row, emitted at); update: (row, at) by key
    states: dict[Any, Known]
    pending: int
    late: int
    excluded: int
    rejected: Mapping[Rejected, int]  # how often; equal events are rejected each for itself


# (key, event or None for a timeout, state or None, clock) -> Called
Call = Callable[[Any, Any, Any, int], Called | Failed]
NOTHING = Known(None, None, None)


def fold_key(
    call: Call,
    key: Any,
    rows: Sequence[StampedRow],
    until_us: int,
    known: Known,
    ttl_us: int | None,
) -> Iterator[tuple[int, Any, Called | Failed]]:
    """Each call for one key before `until_us`, with its instant and its event.

    An event whose call fails might as well not have come: state and timeout are what they were.
    A timeout whose call fails is over, and nothing else has changed.
    """
    state, timeout_us, touched_us = known.state, known.timeout_at_us, known.changed_at_us
    waiting = sorted((row for row in rows if row.time_us < until_us), key=by_time_and_whole_row)
    while True:
        end_us = None if ttl_us is None or state is None else touched_us + ttl_us
        due = [at for at in (timeout_us, end_us) if at is not None and at < until_us]
        if not (waiting or due):
            return
        if not due or (waiting and waiting[0].time_us <= min(due)):
            event, clock_us, *_ = waiting.pop(0)
        elif timeout_us is not None and (end_us is None or timeout_us <= end_us):
            event, clock_us = None, timeout_us
        else:  # nobody is called
            state, timeout_us = None, None
            yield end_us, None, Called([], None, None)
            continue
        called = call(key, event, state, clock_us)
        if isinstance(called, Called):
            _, state, timeout_us = called
            touched_us = clock_us
        elif event is None:
            timeout_us = None
        yield clock_us, event, called


def by_time_and_whole_row(row: StampedRow) -> tuple[Any, ...]:
    return (row.time_us, [rank(value) for value in row.event])


def rank(value: Any) -> tuple[Any, ...]:
    """None first, then NaN, then by value; floats that compare as equal by their sign and bits."""
    if isinstance(value, Enum):
        return rank(value.value)
    if isinstance(value, dict):
        return (2, sorted((rank(key), rank(of)) for key, of in value.items()))
    if isinstance(value, tuple):
        return (2, list(map(rank, value)))
    if not isinstance(value, float):
        return (0,) if value is None else (2, value)
    sign, bits = int(math.copysign(1, value)), int.from_bytes(struct.pack(">d", abs(value)))
    return (1, sign * bits) if value != value else (2, value, sign)


def until(rows: Iterable[StampedRow], delay_us: int) -> int:
    """What these rows settle: everything before this instant."""
    return max(row.commit_us for row in rows) - delay_us + 1


def is_late(row: StampedRow, delay_us: int) -> bool:
    return row.arrival_us is not None and row.time_us <= row.arrival_us - delay_us


def admit(
    fold: KeyedFold, rows: Iterable[StampedRow], delay_us: int, since_us: int | None = None
) -> tuple[list[StampedRow], int, int]:
    """The rows that are folded, and how many are late, and excluded by the initial state."""
    events = [row for row in rows if row.event is not None]
    in_time = [row for row in events if fold.in_processing_time or not is_late(row, delay_us)]
    admitted = [row for row in in_time if since_us is None or row.time_us >= since_us]
    return admitted, len(events) - len(in_time), len(in_time) - len(admitted)


def expected(
    fold: KeyedFold,
    call: Call,
    rows: Sequence[StampedRow],  # as rows_for(fold, ...) has them
    delay_us: int,
    since_us: int | None = None,
    initial: Mapping[Any, Known] | None = None,
) -> Result:
    """The result of a fold whose function does what `call` does."""
    admitted, late, excluded = admit(fold, rows, delay_us, since_us)
    until_us = until(rows, delay_us)
    by_key = defaultdict(list)
    for row in admitted:
        by_key[fold.keys.of(row.event)].append(row)
    states, emitted, rejected = dict(initial or {}), Counter(), Counter()
    for key in {**by_key, **states}:
        for clock_us, event, called in fold_key(
            call, key, by_key[key], until_us, states.get(key, NOTHING), fold.ttl_us
        ):
            if isinstance(called, Failed):
                rejected[Rejected(key, clock_us, event)] += 1
                if event is None:
                    states[key] = states[key]._replace(timeout_at_us=None)
                continue
            emitted.update((stored(fold, output), clock_us) for output in called.outputs)
            has_state = called.state is not None
            states[key] = Known(called.state, clock_us if has_state else None, called.timeout_us)
    states = {key: known for key, known in states.items() if known != NOTHING}
    table = emitted if fold.output_mode == "append" else projected(fold, states)
    pending = sum(row.time_us >= until_us for row in admitted)
    return Result(table, states, pending, late, excluded, rejected)


def projected(fold: KeyedFold, states: Mapping[Any, Known]) -> dict[Any, tuple[Any, int]]:
    """An update stream's table: the projection of its states."""
    return {
        key: (stored(fold, fold.project(key, known.state)), known.changed_at_us)
        for key, known in states.items()
        if known.state is not None
    }


def stored(fold: KeyedFold, row: Iterable[Any]) -> tuple[Any, ...]:
    """A row as its table has it: then it can be counted, dicts in it or not."""
    columns = zip(fold.output_columns, row, strict=True)
    return tuple(v if c.is_plain else c.shape.stored(v, c.name) for c, v in columns)


class PlainGroup:
    """A GroupState in as few words as the shipped streams need: the oracle has its own."""

    def __init__(self, value: Any, clock_us: int, timed_out: bool) -> None:
        self.getOption = value
        self.clock_us = clock_us
        self.hasTimedOut = timed_out
        self.timeout_us: int | None = None

    @property
    def exists(self) -> bool:
        return self.getOption is not None

    @property
    def get(self) -> Any:
        assert self.exists
        return self.getOption

    def update(self, value: Any) -> None:
        self.getOption = value

    def remove(self) -> None:
        self.getOption = None

    def setTimeoutTimestamp(self, *, timestampUs: int) -> None:
        self.timeout_us = timestampUs

    def setTimeoutDuration(self, *, durationUs: int) -> None:
        self.timeout_us = self.clock_us + durationUs


def calls_of(fold: KeyedFold) -> Call:
    """The fold's own state function, called with a PlainGroup.

    A state has one form, between calls too: that in which it is stored.
    """
    as_stored = fold.stored_state or (lambda state: state)

    def call(key: Any, event: Any, state: Any, clock_us: int) -> Called | Failed:
        group = PlainGroup(state, clock_us, timed_out=event is None)
        try:
            outputs = list(fold.function(key, iter(() if event is None else (event,)), group))
        except Exception:
            if fold.on_error == "stop":
                raise
            return Failed()
        state = group.getOption
        return Called(outputs, None if state is None else as_stored(state), group.timeout_us)

    return call
