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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from include.fold.admission import NEVER_US, is_late, micros_of
from include.fold.definition import Key, KeyedFold
from include.fold.emitted import Rejected
from include.fold.local import BronzeRow, LocalFold
from include.fold.records import Nested
from include.fold.states import NO_STATE_US, KeyState


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
    rejected: list[Rejected]  # calls that failed, of a fold with on_error="quarantine"
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
    first_us = None if before is None else before.clock_us
    since_us = 0 if fold.ttl is None else min([clock_us, *(each.time_us for each in arriving)])
    engine = LocalFold(fold, delay_us=0, initial=_known(before, state, timeouts, since_us=since_us))
    rows = [BronzeRow(*each, first_us, clock_us) for each in arriving]
    waited = [BronzeRow(*each, None, clock_us) for each in (before.waiting if before else ())]
    engine.run_batch([*waited, *rows, BronzeRow(None, clock_us, first_us, commit_us=clock_us)])
    rows += (last := [BronzeRow(*each, clock_us, clock_us) for each in after])
    engine.run_batch(last)
    return _ran(fold, engine, clock_us, late=[row.event for row in rows if _is_late(fold, row)])


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
    keys = [*states, *(key for key in timeouts_us if key not in states)]
    return [
        KeyState(key, states.get(key), since_us if key in states else NO_STATE_US, at_us)
        for key in keys
        for at_us in [timeouts_us.get(key, NEVER_US)]
    ]


def _is_late(fold: KeyedFold, row: BronzeRow) -> bool:
    if row.arrival_us is None or fold.in_processing_time:
        return False
    return bool(is_late(row.time_us, row.arrival_us, 0))


def key_of_row(fold: KeyedFold, row: Any) -> Key:
    """The key of a row of an update stream's table."""
    named = dict(zip((column.name for column in fold.output_columns), row, strict=True))
    values = [named[name] for name in fold.keys.names]
    shape = fold.keys.shape
    return shape.record._make(values) if isinstance(shape, Nested) else values[0]


def _ran(fold: KeyedFold, engine: LocalFold, clock_us: int, late: list[Any]) -> Ran:
    emitted = engine.emitted
    gone = emitted.removed or [False] * len(emitted.rows)
    at = list(zip(emitted.emitted_at_us, emitted.rows, gone, strict=True))
    at.sort(key=lambda item: item[0])  # stable: at one instant by key
    return Ran(
        clock_us,
        [row for _, row, is_gone in at if not is_gone],
        [at_us for at_us, _, is_gone in at if not is_gone],
        rejected=engine.rejected,
        late=late,
        removed=[key_of_row(fold, row) for _, row, is_gone in at if is_gone],
        known=engine.states(),
        waiting=[Happened(row.event, row.time_us) for row in engine.waiting()],
        duplicates=engine.duplicates,
    )
