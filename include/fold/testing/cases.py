"""Cases for the law checker: events and cuts, drawn from record types and the function's constants.

Few keys, ties in time, and steps of exactly the spans that the function knows, or one
microsecond beside them: that is where functions go wrong.

A fold called like a function: events in; outputs, states and what waits out.

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

import inspect
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from include.fold.admission import (
    EPOCH,
    MICROSECOND,
    NEVER_US,
    duration_us,
    is_late,
    micros_of,
    until_us,
)
from include.fold.arrow_values import column_values, encode
from include.fold.bucket import derived_keys, settle
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
from include.fold.records import (
    Items,
    Member,
    Moment,
    Money,
    Nested,
    Pairs,
    Scalar,
    Shape,
    columns_of,
)
from include.fold.states import NO_STATE_US, KeyState, States, event_schema


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


FIRST_US = 1_000_000
MOST_EVENTS = 12
LONGEST_TEXT = 30  # others are docstrings and messages
LONGEST_US = 400 * 86_400_000_000  # of a span: others are instants
MILLISECONDS_AT_MOST = 100_000_000
SHORT_US = (1, 1_000)
LONG_US = (1_000_000, 3_600_000_000, 86_400_000_000)
MOST_SPANS = 8  # of the function's own
FIRST_DAY = date(2026, 1, 30)
# Of what is a key or a part of one: the events of a case are to meet.
FEW = {
    "string": st.sampled_from(("a", "a", "a", "b", "c")),
    "bigint": st.sampled_from((1, 1, 1, 2, 3)),
}
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
        """The same without one of its events, or without what it begins with."""
        if self.old_states:
            yield self._replace(old_states={})
        for number in range(len(self.steps)):
            if left := self.steps[:number] + self.steps[number + 1 :]:
                yield self._replace(steps=left)


class Part(NamedTuple):
    """What arrives for one run, and the instant that the run comes to."""

    events: Sequence[Happened]
    clock_us: int


def parts_of(fold: KeyedFold, case: Case) -> list[Part]:
    """What each run of a case is given."""
    runs: list[list[Happened]] = [[]]
    now_us = FIRST_US
    for before, step in zip((None, *case.steps), case.steps, strict=False):
        # A run settles an instant wholly, so no cut is between ties.
        if before is not None and before.ends_run and step.after_us:
            runs.append([])
        now_us += step.after_us
        runs[-1].append(Happened(_at(fold, step.event, now_us), now_us))
    parts = [Part(events, events[-1].time_us) for events in runs]
    return [*parts[:-1], parts[-1]._replace(clock_us=now_us + case.wait_us)]


def _at(fold: KeyedFold, event: Any, now_us: int) -> Any:
    """The event with its times filled in: those are the case's, and none of the drawn ones."""
    times = {fold.time_us, EVENT_TIME_US, INGESTED_AT_US}.intersection(event._fields)
    return event._replace(**dict.fromkeys(times, now_us))


def drawn_cases(fold: KeyedFold, values: Values, old_state: type | None) -> st.SearchStrategy[Case]:
    """Cases of at least one event. `values` are strategies for fields, by name."""
    constants = constants_of(fold)
    own_us = spans_us(constants)[:MOST_SPANS]
    spans = [*SHORT_US, *(us + beside for us in own_us for beside in (0, 1, -1))]
    if not own_us:  # else a function that wakes every second would do so for a day
        spans += LONG_US
    keys = {} if fold.keys.is_derived else dict(fold.keys.parts)
    of_keys = {name: values.get(name, _few(part)) for name, part in keys.items()}
    event = _records(fold.event, {**values, **of_keys}, constants)
    after = st.sampled_from([0] * (len(spans) // 3) + spans)
    steps = st.lists(
        st.builds(Step, event, after, st.sampled_from([False, True, True])),
        min_size=1,
        max_size=MOST_EVENTS,
    )
    old_states: st.SearchStrategy[dict[Any, Any]] = st.just({})
    if old_state is not None:
        old = _records(old_state, values, constants)
        old_states = st.dictionaries(_keys(fold, of_keys), old, max_size=2)
    return st.builds(Case, steps, st.just(0) | st.sampled_from(spans), old_states)


def _few(shape: Shape) -> st.SearchStrategy[Any]:
    few = FEW.get(shape.kind) if isinstance(shape, Scalar) else None
    few = _drawn(shape, []) if few is None else few
    return st.none() | few if shape.nullable else few


def _keys(fold: KeyedFold, of_keys: Values) -> st.SearchStrategy[Any]:
    if fold.keys.is_derived:
        return _shaped(fold.keys.shape, [])
    if isinstance(fold.keys.shape, Nested):
        return st.builds(fold.keys.shape.record, **of_keys)
    return of_keys[fold.keys.names[0]]


def _records(record: Any, values: Values, constants: list[Any]) -> st.SearchStrategy[Any]:
    columns = columns_of(record)
    return st.builds(record, *(values.get(c.name, _shaped(c.shape, constants)) for c in columns))


def _shaped(shape: Shape, constants: list[Any]) -> st.SearchStrategy[Any]:
    drawn = _drawn(shape, constants)
    return st.none() | drawn if shape.nullable else drawn


def _drawn(shape: Shape, constants: list[Any]) -> st.SearchStrategy[Any]:
    """Values of a shape; what it is made of, in twos and threes."""
    if isinstance(shape, Nested):
        return st.builds(shape.record, *(_shaped(part, constants) for _, part in shape.parts))
    if isinstance(shape, Items):
        return st.lists(_shaped(shape.item, constants), max_size=3).map(tuple)
    if isinstance(shape, Pairs):
        keys, items = _shaped(shape.key, constants), _shaped(shape.item, constants)
        return st.dictionaries(keys, items, max_size=3)
    if isinstance(shape, Member):
        return st.sampled_from(list(shape.members))
    if isinstance(shape, Money):
        most = min(99, 10**shape.precision - 1)
        return st.integers(-most, most).map(partial(_money, shape.scale))
    if isinstance(shape, Moment) and not shape.is_count:
        return st.integers(0, 3).map(lambda n: EPOCH + n * MICROSECOND)
    return _scalars(shape.kind, constants)


def _money(scale: int, unscaled: int) -> Decimal:
    return Decimal(unscaled).scaleb(-scale)


def _scalars(kind: str, constants: list[Any]) -> st.SearchStrategy[Any]:
    if kind == "binary":
        return st.binary(max_size=2)
    if kind == "date":
        return st.integers(0, 3).map(lambda n: FIRST_DAY + timedelta(days=n))
    if kind == "boolean":
        return st.booleans()
    if kind == "string":
        texts = [value for value in constants if isinstance(value, str)]
        return st.sampled_from(["a", "b", *texts]) | st.text("abc", max_size=3)
    if kind == "double":
        known = [value for value in constants if isinstance(value, float)]
        return st.sampled_from([*FLOATS, *known]) | st.integers(-9_999, 9_999).map(_tenths)
    near = [value + n for value in constants if type(value) is int for n in (0, 1)]
    return st.sampled_from([0, 1, 2, *near]) | st.integers(-1_000, 1_000_000)


def _tenths(number: int) -> float:
    return number / 10


def constants_of(fold: KeyedFold) -> list[Any]:
    """Numbers, texts and spans of time that its functions mention, each once."""
    window = () if fold.deduplicate is None else (fold.deduplicate.within,)
    found = {(type(of), of): of for of in _plain_in((*window, fold.function), set())}
    texts_cut = (
        of for of in found.values() if not isinstance(of, str) or 0 < len(of) <= LONGEST_TEXT
    )
    return [of for of in texts_cut if not isinstance(of, bool)]


def _plain_in(value: Any, seen: set[int]) -> Iterator[Any]:
    """What is plain in it, and in all that lies in it: in a function its constants, cells and globals."""
    if isinstance(value, PLAIN):
        yield value
    elif id(value) not in seen:
        seen.add(id(value))
        for inner in _inside(value):
            yield from _plain_in(inner, seen)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, tuple | frozenset | list | set):
        return value
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, types.CodeType):
        return value.co_consts
    if isinstance(value, types.FunctionType):
        named = inspect.getclosurevars(value)
        around = [of for of in named.globals.values() if _is_own(of, value)]
        return [value.__code__, *named.nonlocals.values(), *around]
    if isinstance(value, types.MethodType):
        return [value.__func__]
    if isinstance(value, partial):
        return [value.func, value.args]
    if isinstance(getattr(type(value), "__call__", None), types.FunctionType):  # noqa: B004
        return [type(value).__call__, *vars(value).values()]
    return [value.__wrapped__] if hasattr(value, "__wrapped__") else []


def _is_own(value: Any, function: types.FunctionType) -> bool:
    """Of what a function names of its module: plain values, and functions written there, too."""
    is_function = isinstance(value, types.FunctionType)
    return isinstance(value, (*PLAIN, tuple, frozenset)) or (
        is_function and value.__module__ == function.__module__
    )


def spans_us(constants: Iterable[Any]) -> list[int]:
    """Those that may be spans of time, in microseconds; a small number may be milliseconds."""
    spans: list[int] = []
    for value in constants:
        if isinstance(value, timedelta):
            spans.append(value // MICROSECOND)
        elif isinstance(value, str):
            spans += _of_words(value)
        elif isinstance(value, int):
            spans += [value, value * 1_000] if value <= MILLISECONDS_AT_MOST else [value]
    return sorted({span for span in spans if 1 < span <= LONGEST_US})


def _of_words(text: str) -> list[int]:
    try:
        return [duration_us(text)]
    except ValueError:  # most texts are no span
        return []
