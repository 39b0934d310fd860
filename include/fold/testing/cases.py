"""A fold called like a function; and the law checker's cases, from record types and constants.

Few keys, ties in time, and steps of exactly the spans that the function knows, or one microsecond
more or less: that is where functions go wrong.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import CodeType, MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from include.fold.admission import NEVER_US, duration_us, is_late, micros_of, until_us
from include.fold.arrow_values import column_values, encode, event_schema
from include.fold.bucket import derived_keys, fold_complete
from include.fold.definition import (
    EMITTED_AT_US,
    EVENT_TIME_US,
    INGESTED_AT_US,
    KEY,
    REMOVED,
    DeadLetter,
    Key,
    KeyedFold,
)
from include.fold.records import Items, Nested, Pairs, Scalar, Shape, columns_of, sql_type
from include.fold.states import KeyState, States


class Happened(NamedTuple):
    """An event and its time: for records that do not hold it, and in processing time."""

    event: Any
    time_us: int


@dataclass(frozen=True)
class Ran:
    """The result of a run. Given to the next one as `state=`, that goes on from here."""

    clock_us: int
    outputs: list[Any]  # append: all, in the order of the clock; update: the row of each key
    emitted_at_us: list[int]  # of each output
    dead_letters: list[DeadLetter]  # calls that failed, of a fold with on_error="dead_letter"
    late: list[Any]  # events that came too late: they are not folded
    removed: list[Key] = field(repr=False)  # of an update fold: whose row has been taken away
    known: dict[Key, KeyState] = field(repr=False)
    waiting: list[Happened] = field(repr=False)
    duplicates: int = field(default=0, repr=False)  # of a fold with deduplicate=: not folded again

    @property
    def states(self) -> dict[Key, Any]:
        return {key: known.state for key, known in self.known.items() if known.state is not None}

    @property
    def timeouts(self) -> dict[Key, int]:
        timed = ((key, known.timeout_at_us) for key, known in self.known.items())
        return {key: at_us for key, at_us in timed if at_us != NEVER_US}

    @property
    def timers(self) -> dict[Key, dict[str, int]]:
        found = {}
        for key, known in self.known.items():
            if known.extra and hasattr(known.extra[-1], "_asdict"):
                each = known.extra[-1]._asdict().items()
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

    `clock` is the instant to which the stream comes, else the newest event's: events after it are
    pending, timeouts up to it fire; those of `late`, which arrive after that, are late up to it.
    `state` is what keys have before, and `timeouts` when they time out; or an earlier run.
    """
    before = state if isinstance(state, Ran) else None
    arriving = [_happened(fold, event) for event in events]
    after = [_happened(fold, event) for event in late]
    clock_us = _clock_us(clock, before, arriving)
    too_late, waiting = _admitted(fold, before, arriving, after, clock_us)
    if before is None:
        since_us = 0 if fold.ttl is None else min([clock_us, *(each.time_us for each in arriving)])
        given, timeouts_us = dict(state or {}), timeouts or {}  # type: ignore[arg-type]
        keys = {**given, **timeouts_us}
        known = [KeyState(k, given.get(k), since_us, timeouts_us.get(k, NEVER_US)) for k in keys]
    else:
        known = [*before.known.values()]
    states = States(fold)
    for each in known:
        states.put(*each)
    until = until_us(clock_us)
    events = _events(fold, waiting)
    complete = fold_complete(fold, lambda: states, events, until, timeouts_due=True)
    at = _outputs(fold, complete.outputs)
    return Ran(
        clock_us,
        [row for _, row, is_gone in at if not is_gone],
        [at_us for at_us, _, is_gone in at if not is_gone],
        dead_letters=[DeadLetter(**each) for each in complete.dead_letters.to_pylist()],
        late=[each.event for each in too_late],
        removed=[key_of_row(fold, row) for _, row, is_gone in at if is_gone],
        known={known.key: known for known in states},
        waiting=[each for each in waiting if each.time_us >= until],
        duplicates=complete.rows_duplicate,
    )


def _happened(fold: KeyedFold, event: Any) -> Happened:
    if isinstance(event, Happened):
        return event
    time_us = getattr(event, fold.time_us, None)
    if type(time_us) is not int:
        raise ValueError(f"{event!r} does not say when it happened: give Happened(event, time_us)")
    return Happened(event, time_us)


def _clock_us(clock: int | datetime | None, before: Ran | None, events: list[Happened]) -> int:
    if clock is not None:
        return micros_of(clock) if isinstance(clock, datetime) else clock
    times = [*(event.time_us for event in events), *([] if before is None else [before.clock_us])]
    if not times:
        raise ValueError("without events nothing says what time it is: give clock=")
    return max(times)


def _admitted(
    fold: KeyedFold,
    before: Ran | None,
    arriving: list[Happened],
    after: list[Happened],
    clock_us: int,
) -> tuple[list[Happened], list[Happened]]:
    """Return the events that come too late, and those that are folded now or later."""
    first_us = None if before is None else before.clock_us
    arrivals = [*((each, first_us) for each in arriving), *((each, clock_us) for each in after)]
    too_late: list[Happened] = []
    waiting = [] if before is None else list(before.waiting)
    for each, arrival_us in arrivals:
        is_too_late = arrival_us is not None and is_late(each.time_us, arrival_us, 0)
        (too_late if is_too_late else waiting).append(each)
    if fold.in_processing_time and (too_late or any(each.time_us > clock_us for each in waiting)):
        raise ValueError("in processing time an event is folded in the run that it arrives in")
    return too_late, waiting


def _events(fold: KeyedFold, waiting: Sequence[Happened]) -> pa.Table:
    """Return events as an engine gets them (`event_schema(fold)`)."""
    columns = {
        column.name: encode(column.shape, [each.event[number] for each in waiting])
        for number, column in enumerate(fold.event_columns)
    }
    columns[fold.time_us] = pa.array([each.time_us for each in waiting], pa.int64())
    if fold.keys.is_derived:
        columns[KEY] = derived_keys(fold, pa.table(columns))
    return pa.table(columns, schema=event_schema(fold))


def key_of_row(fold: KeyedFold, row: Any) -> Key:
    """Return the key of a row of an update stream's table."""
    named = dict(zip((column.name for column in fold.output_columns), row, strict=True))
    values = [named[name] for name in fold.keys.names]
    shape = fold.keys.shape
    return shape.record._make(values) if isinstance(shape, Nested) else values[0]


def _outputs(fold: KeyedFold, table: pa.Table) -> list[tuple[int, Any, bool]]:
    """Return the instant and row of each output, in the order of the clock, and True if its key is gone."""
    columns = [column_values(column, table[column.name]) for column in fold.output_columns]
    rows = map(fold.output._make, zip(*columns, strict=True))  # type: ignore[attr-defined]
    is_update = fold.output_mode == "update"
    gone = table[REMOVED].to_pylist() if is_update else [False] * table.num_rows
    at = zip(table[EMITTED_AT_US].to_pylist(), rows, gone, strict=True)
    return sorted(at, key=lambda item: item[0])  # stable: at one instant by key


FIRST_US = 1_000_000
MOST_EVENTS = 12
LONGEST_TEXT = 30  # others are docstrings and messages
LONGEST_US = 400 * 86_400_000_000  # of a span: others are instants
MILLISECONDS_AT_MOST = 100_000_000
SHORT_US = (1, 1_000)
LONG_US = (1_000_000, 3_600_000_000, 86_400_000_000)
MOST_SPANS = 8  # of the function's own
# Of what is a key or a part of one: the events of a case are to meet.
FEW: dict[Any, tuple[Any, ...]] = {str: ("a", "a", "a", "b", "c"), int: (1, 1, 1, 2, 3)}
# Whose sum depends on the order: (0.1 + 0.2) + 0.3 is not 0.1 + (0.2 + 0.3).
FLOATS = (0.0, 0.1, 0.2, 0.3, 0.7, -0.7, -0.0, 1e16)
Values = Mapping[str, st.SearchStrategy[Any]]
PLAIN = (int, float, str, timedelta)


class Step(NamedTuple):
    """One event, and how it follows those before it."""

    event: Any
    after_us: int
    ends_run: bool


class Case(NamedTuple):
    """Events cut into runs, and what the stream begins with."""

    steps: list[Step]
    wait_us: int  # how much further than its events the last run comes
    old_states: dict[Any, Any]

    def fewer(self) -> Iterator["Case"]:
        """Yield the case without one of its events, or without the states it begins with."""
        if self.old_states:
            yield self._replace(old_states={})
        for number in range(len(self.steps)):
            if left := self.steps[:number] + self.steps[number + 1 :]:
                yield self._replace(steps=left)


class Part(NamedTuple):
    """The events of one run, and the instant that the run comes to."""

    events: Sequence[Happened]
    clock_us: int


def parts_of(fold: KeyedFold, case: Case) -> list[Part]:
    """Return the parts of a case, one for each run."""
    runs: list[list[Happened]] = [[]]
    now_us, is_cut = FIRST_US, False
    times = {fold.time_us, EVENT_TIME_US, INGESTED_AT_US}.intersection(fold.event._fields)  # type: ignore[attr-defined]
    for event, after_us, ends_run in case.steps:
        if is_cut and after_us:  # a run completes an instant wholly, so no cut is between ties
            runs.append([])
        now_us, is_cut = now_us + after_us, ends_run
        runs[-1].append(Happened(event._replace(**dict.fromkeys(times, now_us)), now_us))
    parts = [Part(events, events[-1].time_us) for events in runs]
    return [*parts[:-1], parts[-1]._replace(clock_us=now_us + case.wait_us)]


def drawn_cases(fold: KeyedFold, values: Values, old_state: type | None) -> st.SearchStrategy[Case]:
    """Return a strategy for cases of at least one event; `values` are strategies for fields, by name."""
    constants = constants_of(fold)
    own_us = spans_us(constants)[:MOST_SPANS]
    spans = [*SHORT_US, *(us + extra for us in own_us for extra in (0, 1, -1))]
    if not own_us:  # else a function that wakes every second would do so for a day
        spans += LONG_US
    keys = {} if fold.keys.is_derived else dict(fold.keys.parts)
    values = {**{name: _drawn(shape, [], FEW) for name, shape in keys.items()}, **values}
    after = st.sampled_from([0] * (len(spans) // 3) + spans)
    step = st.builds(Step, _records(fold.event, values, constants), after, st.booleans())
    steps = st.lists(step, min_size=1, max_size=MOST_EVENTS)
    old_states: st.SearchStrategy[dict[Any, Any]] = st.just({})
    if old_state is not None:
        old = _records(old_state, values, constants)
        old_states = st.dictionaries(_drawn(fold.keys.shape, [], FEW), old, max_size=2)
    return st.builds(Case, steps, st.just(0) | st.sampled_from(spans), old_states)


def _records(record: Any, values: Values, constants: list[Any]) -> st.SearchStrategy[Any]:
    columns = columns_of(record)
    return st.builds(record, *(values.get(c.name, _drawn(c.shape, constants)) for c in columns))


def _drawn(
    shape: Shape, constants: list[Any], few: Mapping[Any, tuple[Any, ...]] = MappingProxyType({})
) -> st.SearchStrategy[Any]:
    """Values of a shape; what it is made of, in twos and threes."""
    if isinstance(shape, Nested):
        drawn = st.builds(shape.record, *(_drawn(of, constants, few) for _, of in shape.parts))
    elif isinstance(shape, Items):
        drawn = st.lists(_drawn(shape.item, constants), max_size=3).map(tuple)
    elif isinstance(shape, Pairs):
        keys, items = _drawn(shape.key, constants), _drawn(shape.item, constants)
        drawn = st.dictionaries(keys, items, max_size=3)
    else:
        assert isinstance(shape, Scalar)
        known = few.get(shape.plain)
        drawn = st.sampled_from(known) if known else _scalars(shape, constants)
    return st.none() | drawn if shape.nullable else drawn


def _scalars(shape: Scalar, constants: list[Any]) -> st.SearchStrategy[Any]:
    plain = shape.plain
    known = [value for value in constants if type(value) is plain]
    if plain is Decimal:
        kind = sql_type(shape.kind)
        most = min(99, 10**kind.precision - 1)
        return st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-kind.scale))
    if plain is int:
        near = [value + n for value in known for n in (0, 1)]
        return st.sampled_from([0, 1, 2, *near]) | st.integers(-1_000, 1_000_000)
    if plain is str:
        return st.sampled_from(["a", "b", *known]) | st.text("abc", max_size=3)
    if plain is float:
        tenths = st.integers(-9_999, 9_999).map(lambda number: number / 10)
        return st.sampled_from([*FLOATS, *known]) | tenths
    if plain is datetime:
        return st.datetimes(timezones=st.just(UTC))
    return st.from_type(plain)


def constants_of(fold: KeyedFold) -> list[Any]:
    """Return the numbers, texts and spans of time in the function, and in functions of its module that it calls."""
    found: list[Any] = [] if fold.deduplicate is None else [fold.deduplicate.within]
    functions = [getattr(fold.function, "function", fold.function)]
    for function in filter(inspect.isfunction, functions):  # which grow
        named = inspect.getclosurevars(function)
        around = [*named.nonlocals.values(), *named.globals.values()]
        found += _plain_in((function.__code__, *around))
        functions += (
            of
            for of in around
            if getattr(of, "__module__", "") == function.__module__ and of not in functions
        )
    return list({(type(of), of): of for of in found}.values())


def _plain_in(value: Any) -> Iterator[Any]:
    if isinstance(value, CodeType):
        value = value.co_consts
    if isinstance(value, tuple | frozenset):
        for each in value:
            yield from _plain_in(each)
    elif isinstance(value, str):
        if 0 < len(value) <= LONGEST_TEXT:
            yield value
    elif isinstance(value, PLAIN) and not isinstance(value, bool):
        yield value


def spans_us(constants: Iterable[Any]) -> list[int]:
    """Return the constants that may be spans of time, in microseconds; a small number may be milliseconds."""
    spans: list[int] = []
    for value in constants:
        if isinstance(value, int):
            spans += [value, value * 1_000] if value <= MILLISECONDS_AT_MOST else [value]
        elif isinstance(value, str | timedelta):
            with suppress(ValueError):  # most texts are no span
                spans.append(duration_us(value))
    return sorted({span for span in spans if 1 < span <= LONGEST_US})
