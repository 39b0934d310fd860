"""A fold called like a function: events in; outputs, states and what waits out.

    >>> from datetime import timedelta
    >>> from include.streams.user_sessions import UserEvent, define
    >>> fold = define(gap=timedelta(microseconds=100))
    >>> ran = run(fold, [UserEvent("ann", 1_000), UserEvent("ann", 1_040)])
    >>> ran.outputs
    []
    >>> ran.states
    {'ann': OpenSession(started_us=1000, last_us=1040, events=2)}
    >>> ran.timeouts
    {'ann': 1140}

The session is closed when the stream's clock has come to its timeout:

    >>> run(fold, [], state=ran, clock=1_140).outputs
    [UserSession(user_id='ann', session_start=1000, session_end=1040, events=2)]
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

from include.fold.admission import NEVER_US, is_late, micros_of, until_us
from include.fold.arrow_values import column_values, encode
from include.fold.bucket import derived_keys, settle
from include.fold.definition import EMITTED_AT_US, KEY, REMOVED, Key, KeyedFold
from include.fold.emitted import DeadLetter
from include.fold.records import Nested
from include.fold.schemas import event_schema
from include.fold.states import NO_STATE_US, KeyState, States


class Happened(NamedTuple):
    """An event and its time: for records that do not hold it, and in processing time."""

    event: Any
    time_us: int


@dataclass(frozen=True)
class Ran:
    """What a run came to. Given to the next as `state=`, that one goes on from here."""

    clock_us: int
    outputs: list[Any]  # append: all, in the order of the clock; update: the row of each key
    emitted_at_us: list[int]  # beside each output
    dead_letters: list[DeadLetter]  # calls that failed, of a fold with on_error="dead_letter"
    late: list[Any]  # events that came too late: they are not folded
    removed: list[Key] = field(repr=False)  # of an update fold: whose row has been taken away
    known: dict[Key, KeyState] = field(repr=False)
    waiting: list[Happened] = field(repr=False)
    duplicates: int = field(default=0, repr=False)  # of a fold with deduplicate=: not folded again

    @property
    def states(self) -> dict[Key, Any]:
        """The state of each key that has one."""
        return {key: known.state for key, known in self.known.items() if known.state is not None}

    @property
    def timeouts(self) -> dict[Key, int]:
        """When each key times out, of those that do."""
        timed = ((key, known.timeout_at_us) for key, known in self.known.items())
        return {key: at_us for key, at_us in timed if at_us != NEVER_US}

    @property
    def timers(self) -> dict[Key, dict[str, int]]:
        """The timers of each key that are set, by name, and when each fires."""
        found = {}
        for key, known in self.known.items():
            if known.beside and hasattr(known.beside[-1], "_asdict"):
                each = known.beside[-1]._asdict().items()
                found[key] = {name: at_us for name, at_us in each if at_us is not None}
        return found

    @property
    def pending(self) -> list[Any]:
        """Events after the clock: they wait until it has passed them."""
        return [event for event, _ in self.waiting]


def run(
    fold: KeyedFold,
    events: Iterable[Any],
    *,
    late: Iterable[Any] = (),
    clock: int | datetime | None = None,
    state: Mapping[Key, Any] | Ran | None = None,
    timeouts: Mapping[Key, int] | None = None,
) -> Ran:
    """Let `events` arrive, in any order, and fold all up to `clock`.

    An event is a record, or `Happened(event, time_us)`. `clock` is the instant to which the
    stream comes (microseconds or a datetime): the newest event's, unless it is given. Events
    after it are pending; timeouts up to it fire. The events of `late` arrive after that: those
    up to `clock` are late. `state` is what keys have before, and `timeouts` when they time
    out; or it is an earlier run, to go on from.
    """
    before = state if isinstance(state, Ran) else None
    arriving = [_happened(fold, event) for event in events]
    after = [_happened(fold, event) for event in late]
    clock_us = _clock_us(clock, before, arriving)
    if fold.in_processing_time:
        _check_ingested(arriving, after, before, clock_us=clock_us)
    too_late, waiting = _admitted(fold, before, arriving, after, clock_us)
    since_us = 0 if fold.ttl is None else min([clock_us, *(each.time_us for each in arriving)])
    states = States(fold)
    for known in _known(before, state, timeouts, since_us=since_us):
        states.put(*known)
    until = until_us(clock_us)
    events = _events(fold, waiting)
    settled = settle(fold, lambda: states, events, until, timeouts_due=True)
    at = _outputs(fold, settled.outputs)
    return Ran(
        clock_us,
        [row for _, row, is_gone in at if not is_gone],
        [at_us for at_us, _, is_gone in at if not is_gone],
        dead_letters=[DeadLetter(**each) for each in settled.dead_letters.to_pylist()],
        late=[each.event for each in too_late],
        removed=[key_of_row(fold, row) for _, row, is_gone in at if is_gone],
        known={known.key: known for known in states},
        waiting=[each for each in waiting if each.time_us >= until],
        duplicates=settled.rows_duplicate,
    )


def _happened(fold: KeyedFold, event: Any) -> Happened:
    if isinstance(event, Happened):
        return event
    time_us = getattr(event, fold.time_us, None)
    if type(time_us) is not int:
        raise ValueError(
            f"{event!r} does not say when it happened: give Happened(event, time_us), or its "
            f"record a field {fold.time_us}: int"
        )
    return Happened(event, time_us)


def _clock_us(clock: int | datetime | None, before: Ran | None, events: list[Happened]) -> int:
    earlier = [] if before is None else [before.clock_us]
    if clock is None:
        times = [*earlier, *(event.time_us for event in events)]
        if not times:
            raise ValueError("without events nothing says what time it is: give clock=")
        return max(times)
    clock_us = micros_of(clock) if isinstance(clock, datetime) else clock
    if earlier > [clock_us]:
        raise ValueError(f"clock={clock_us} is before that of the earlier run, {earlier[0]}")
    return clock_us


def _check_ingested(
    events: list[Happened], late: list[Happened], before: Ran | None, clock_us: int
) -> None:
    """What is ingested, is ingested now: neither before the last run nor after this one."""
    if late:
        raise ValueError("in processing time nothing is late: leave late= out")
    for event in events:
        if event.time_us > clock_us or (before and event.time_us <= before.clock_us):
            raise ValueError(
                f"{event!r} is ingested after the clock, or not after the earlier run: in "
                "processing time an event is folded in the run that it arrives in"
            )


def _known(
    before: Ran | None,
    state: Mapping[Key, Any] | Ran | None,
    timeouts: Mapping[Key, int] | None,
    since_us: int,
) -> list[KeyState]:
    if isinstance(state, Ran):
        if timeouts:
            raise ValueError("an earlier run has its timeouts: leave timeouts= out")
        return list(state.known.values())
    states, timeouts_us = state or {}, timeouts or {}
    return [
        KeyState(
            key,
            states.get(key),
            since_us if key in states else NO_STATE_US,
            timeouts_us.get(key, NEVER_US),
        )
        for key in {**states, **timeouts_us}
    ]


def _admitted(
    fold: KeyedFold,
    before: Ran | None,
    arriving: list[Happened],
    after: list[Happened],
    clock_us: int,
) -> tuple[list[Happened], list[Happened]]:
    """What comes too late, and what is folded now or later."""
    if fold.in_processing_time:
        return [], arriving
    first_us = None if before is None else before.clock_us
    arrivals = [*((each, first_us) for each in arriving), *((each, clock_us) for each in after)]
    too_late: list[Happened] = []
    waiting = [] if before is None else list(before.waiting)
    for each, arrival_us in arrivals:
        is_too_late = arrival_us is not None and is_late(each.time_us, arrival_us, 0)
        (too_late if is_too_late else waiting).append(each)
    return too_late, waiting


def _events(fold: KeyedFold, waiting: Sequence[Happened]) -> pa.Table:
    """`event_schema(fold)`, as an engine gets them."""
    columns = {
        column.name: encode(column.shape, [each.event[number] for each in waiting])
        for number, column in enumerate(fold.event_columns)
    }
    columns[fold.time_us] = pa.array([each.time_us for each in waiting], pa.int64())
    if fold.keys.is_derived:
        columns[KEY] = derived_keys(fold, pa.table(columns))
    return pa.table(columns, schema=event_schema(fold))


def key_of_row(fold: KeyedFold, row: Any) -> Key:
    """The key of a row of an update stream's table."""
    named = dict(zip((column.name for column in fold.output_columns), row, strict=True))
    values = [named[name] for name in fold.keys.names]
    shape = fold.keys.shape
    return shape.record._make(values) if isinstance(shape, Nested) else values[0]


def _outputs(fold: KeyedFold, table: pa.Table) -> list[tuple[int, Any, bool]]:
    """What was emitted, in the order of the clock: when, the row, and whether its key is gone."""
    columns = [column_values(column, table[column.name]) for column in fold.output_columns]
    rows = map(fold.output._make, zip(*columns, strict=True))  # type: ignore[attr-defined]
    is_update = fold.output_mode == "update"
    gone = table[REMOVED].to_pylist() if is_update else [False] * table.num_rows
    at = zip(table[EMITTED_AT_US].to_pylist(), rows, gone, strict=True)
    return sorted(at, key=lambda item: item[0])  # stable: at one instant by key
