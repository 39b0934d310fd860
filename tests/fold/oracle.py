"""The result of a stream by the fold law, in plain Python: no buckets, batches or engines.

Per key, from the first instant to `until`: all that is due of it, and of that the least: by its
instant, then events, the timeout, the timers by name, the end of the state.
"""

import math
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from include.fold.definition import KeyedFold
from tests.bronze import StampedRow


class Known(NamedTuple):
    """One key's state and timeout; None for what it does not have."""

    state: Any
    changed_at_us: int | None
    timeout_at_us: int | None


Timers = Mapping[str, int]  # when each that is set comes, by its name
EVENT, TIMED_OUT, TIMED, ENDED = range(4)


class Moment(NamedTuple):
    """The arguments of a call: an event, or a timer's name; neither for a timeout."""

    key: Any
    event: Any
    timer: str | None
    state: Any
    clock_us: int
    timers: Timers


class Called(NamedTuple):
    """The result of one call of a state function."""

    outputs: list[Any]
    state: Any
    timeout_us: int | None
    timers: Timers = MappingProxyType({})


class Failed(NamedTuple):
    """A call that failed, in a stream that goes on all the same."""


class DeadLetter(NamedTuple):
    """A call that failed: for an event, or None for a timeout."""

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
    dead_letters: Mapping[DeadLetter, int]  # how often; equal events are letters each for itself
    timers: Mapping[Any, Timers]  # by key


Call = Callable[[Moment], Called | Failed]
NOTHING = Known(None, None, None)


@dataclass
class OneKey:
    """The state, timeout and timers of a key, from call to call.

    An event whose call fails might as well not have come: state, timeout and timers are what they
    were. A timeout or timer whose call fails is over, and nothing else has changed.
    """

    fold: KeyedFold
    call: Call
    key: Any
    known: Known
    timers: dict[str, int] = field(default_factory=dict)

    def calls(
        self, rows: Sequence[StampedRow], until_us: int
    ) -> Iterator[tuple[int, Any, Called | Failed]]:
        """Each call before `until_us`, with its instant and its event."""
        waiting = sorted(rows, key=by_time_and_whole_row)
        while due := [each for each in self._due(waiting) if each[0] < until_us]:
            at_us, kind, name = min(due)
            if kind == ENDED:  # nobody is called
                self.known, self.timers = NOTHING, {}
                continue
            event = waiting.pop(0).event if kind == EVENT else None
            if kind == TIMED_OUT:
                self.known = self.known._replace(timeout_at_us=None)
            elif kind == TIMED:
                del self.timers[name]
            called = self._called(event, name or None, at_us)
            yield at_us, event, called

    def _due(self, waiting: Sequence[StampedRow]) -> Iterator[tuple[int, int, str]]:
        state, changed_us, timeout_us = self.known
        if waiting:
            yield waiting[0].time_us, EVENT, ""
        if timeout_us is not None:
            yield timeout_us, TIMED_OUT, ""
        for name, at_us in self.timers.items():
            yield at_us, TIMED, name
        if self.fold.ttl_us is not None and state is not None:
            yield changed_us + self.fold.ttl_us, ENDED, ""

    def _called(self, event: Any, timer: str | None, at_us: int) -> Called | Failed:
        moment = Moment(self.key, event, timer, self.known.state, at_us, self.timers)
        called = self.call(moment)
        if isinstance(called, Called):
            self.timers = dict(called.timers)
            changed_us = None if called.state is None else at_us
            self.known = Known(called.state, changed_us, called.timeout_us)
        return called


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
    """Return the instant before which these rows complete everything."""
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
    states, timers, emitted, dead_letters = dict(initial or {}), {}, Counter(), Counter()
    for key in {**by_key, **states}:
        one = OneKey(fold, call, key, states.get(key, NOTHING))
        for at_us, event, called in one.calls(by_key[key], until_us):
            if isinstance(called, Failed):
                dead_letters[DeadLetter(key, at_us, event)] += 1
            else:
                emitted.update((stored(fold, output), at_us) for output in called.outputs)
        states[key], timers[key] = one.known, one.timers
    states = {key: known for key, known in states.items() if known != NOTHING}
    table = emitted if fold.output_mode == "append" else projected(fold, states)
    pending = sum(row.time_us >= until_us for row in admitted)
    set_timers = {key: of for key, of in timers.items() if of}
    return Result(table, states, pending, late, excluded, dead_letters, set_timers)


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
    as_stored = (lambda state: state) if fold.has_plain_state else fold.stored

    def call(moment: Moment) -> Called | Failed:
        event = moment.event
        group = PlainGroup(moment.state, moment.clock_us, timed_out=event is None)
        events = iter(() if event is None else (event,))
        try:
            outputs = list(fold.function(moment.key, events, group))
        except Exception:
            if fold.on_error == "stop":
                raise
            return Failed()
        state = group.getOption
        return Called(outputs, None if state is None else as_stored(state), group.timeout_us)

    return call
