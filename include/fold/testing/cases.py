"""Cases for the law checker: how events may reach a stream, drawn from record types and the function's constants.

Few keys, ties in time, and steps of exactly the spans that the function knows, or one
microsecond beside them: that is where functions go wrong.
"""

import dis
import inspect
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from hypothesis import strategies as st

from include.fold.admission import EPOCH, MICROSECOND, duration_us
from include.fold.definition import EVENT_TIME_US, INGESTED_AT_US, KeyedFold
from include.fold.records import (
    Column,
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
from include.fold.testing.run import Happened

LONGEST_TEXT = 30  # others are docstrings and messages
LONGEST_US = 400 * 86_400_000_000  # of a span: others are instants
MILLISECONDS_AT_MOST = 100_000_000


def constants_of(fold: KeyedFold) -> list[Any]:
    """Numbers, texts and spans of time that its functions mention, each once."""
    found: dict[tuple[type, Any], Any] = {}
    window = () if fold.deduplicate is None else (fold.deduplicate.within,)
    for value in (*window, *_held_by(fold.function, set())):
        if isinstance(value, int | float | timedelta) and not isinstance(value, bool):
            found[type(value), value] = value
        elif isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT:
            found[str, value] = value
    return list(found.values())


def _held_by(value: Any, seen: set[int]) -> Iterator[Any]:
    """`value`, and what lies in it: in a function its constants, cells and globals."""
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value
    for inner in _inside(value):
        yield from _held_by(inner, seen)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, tuple | frozenset | list | set):
        return value
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, types.CodeType):
        # Not `co_consts`: there are the names of arguments, too.
        loaded = (i.argval for i in dis.get_instructions(value) if i.opname == "LOAD_CONST")
        return [constant for constant in loaded if isinstance(constant, _PLAIN)]
    if isinstance(value, types.FunctionType):
        named = inspect.getclosurevars(value)
        around = [of for of in named.globals.values() if _is_own(of, value)]
        return [value.__code__, *named.nonlocals.values(), *around]
    if isinstance(value, types.MethodType | partial):
        return [value.__func__] if isinstance(value, types.MethodType) else [value.func, value.args]
    if isinstance(getattr(type(value), "__call__", None), types.FunctionType):  # noqa: B004
        return [type(value).__call__, *vars(value).values()]
    return [value.__wrapped__] if hasattr(value, "__wrapped__") else []


_PLAIN = (int, float, str, tuple, frozenset, types.CodeType)


def _is_own(value: Any, function: types.FunctionType) -> bool:
    """Of what a function names of its module: plain values, and functions written there, too."""
    is_function = isinstance(value, types.FunctionType)
    return isinstance(value, (*_PLAIN, timedelta)) or (
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


FIRST_US = 1_000_000
MOST_EVENTS = 12
SHORT_US = (1, 1_000)
LONG_US = (1_000_000, 3_600_000_000, 86_400_000_000)
MOST_SPANS = 8  # of the function's own
KEYS: dict[type, tuple[Any, ...]] = {str: ("a", "a", "a", "b", "c"), int: (1, 1, 1, 2, 3)}
FIRST_DAY = date(2026, 1, 30)
# Whose sum depends on the order: (0.1 + 0.2) + 0.3 is not 0.1 + (0.2 + 0.3).
FLOATS = (0.0, 0.1, 0.2, 0.3, 0.7, -0.7, -0.0, 1e16)
Values = Mapping[str, st.SearchStrategy[Any]]


class Part(NamedTuple):
    """What arrives for one run, and the instant that the run comes to."""

    events: Sequence[Happened]
    clock_us: int


class Case(NamedTuple):
    """Events cut into runs. Those of `late` come too late, so they must not count."""

    parts: list[Part]
    late: set[int]  # numbers of events, in the order in which they arrive
    old_states: dict[Any, Any]

    def in_order(self) -> Part:
        """All that is folded, in one run."""
        arrived = [event for part in self.parts for event in part.events]
        events = [event for number, event in enumerate(arrived) if number not in self.late]
        return Part(sorted(events, key=lambda event: event.time_us), self.parts[-1].clock_us)

    def whole(self) -> Part:
        """The same, arriving the other way round."""
        events, clock_us = self.in_order()
        return Part(events[::-1], clock_us)


class Step(NamedTuple):
    """One event, and how it follows those before it."""

    event: Any
    after_us: int
    ends_run: bool
    wait_us: int  # of a run that ends here: how much further it comes
    travels: int  # -1: arrives a run early, and waits there; 1: a run too late


class Drawn(NamedTuple):
    """What a case is made of."""

    steps: list[Step]
    old_states: dict[Any, Any]

    def fewer(self) -> Iterator["Drawn"]:
        """The same without one of its events, or without what it begins with."""
        if self.old_states:
            yield self._replace(old_states={})
        for number, gone in enumerate(self.steps):
            before, after = self.steps[:number], self.steps[number + 1 :]
            if before and gone.ends_run:
                before[-1] = before[-1]._replace(ends_run=True)
            if before or after:
                yield self._replace(steps=before + after)


def drawn_cases(
    fold: KeyedFold, values: Values, old_state: type | None = None
) -> st.SearchStrategy[Drawn]:
    """Cases of at least one event. `values` are strategies for fields, by name."""
    steps = st.lists(_steps(fold, values), min_size=1, max_size=MOST_EVENTS)
    old_states: st.SearchStrategy[dict[Any, Any]] = st.just({})
    if old_state is not None:
        constants = constants_of(fold)
        record = _records(old_state, columns_of(old_state), values, constants=constants)
        old_states = st.dictionaries(_keys(fold, values), record, max_size=2)
    return st.builds(Drawn, steps, old_states)


def _steps(fold: KeyedFold, values: Values) -> st.SearchStrategy[Step]:
    constants = constants_of(fold)
    own_us = spans_us(constants)[:MOST_SPANS]
    spans = [*SHORT_US, *(us + beside for us in own_us for beside in (0, 1, -1))]
    if not own_us:  # else a function that wakes every second would do so for a day
        spans += LONG_US
    key = _key_values(fold, values)
    return st.builds(
        Step,
        _records(fold.event, fold.event_columns, {**values, **key}, constants=constants),
        st.sampled_from([0] * (len(spans) // 3) + spans),
        st.sampled_from([False, True, True]),
        st.just(0) | st.sampled_from(spans),
        st.just(0) if fold.in_processing_time else st.sampled_from([0, 0, 0, 0, -1, 1]),
    )


def _key_values(fold: KeyedFold, values: Values) -> Values:
    """Few, of the fields that are keys: the events of a case are to meet."""
    if fold.keys.is_derived:
        return {}
    return {name: values.get(name, _few(part)) for name, part in fold.keys.parts}


def _few(part: Shape) -> st.SearchStrategy[Any]:
    known = KEYS.get(part.plain) if isinstance(part, Scalar) else None
    few = st.sampled_from(known) if known else _shaped(part, [])
    return st.none() | few if part.nullable else few


def _keys(fold: KeyedFold, values: Values) -> st.SearchStrategy[Any]:
    if fold.keys.is_derived:
        return _shaped(fold.keys.shape, [])
    drawn = _key_values(fold, values)
    if isinstance(fold.keys.shape, Nested):
        return st.builds(fold.keys.shape.record, **drawn)
    return drawn[fold.keys.names[0]]


def _records(
    record: Any, columns: Sequence[Column], values: Values, constants: list[Any]
) -> st.SearchStrategy[Any]:
    drawn = [values.get(column.name, _shaped(column.shape, constants)) for column in columns]
    return st.builds(record, *drawn)


def _shaped(shape: Shape, constants: list[Any]) -> st.SearchStrategy[Any]:
    """Values of a shape; what it is made of, in twos and threes."""
    if isinstance(shape, Nested):
        parts = [_shaped(part, constants) for _, part in shape.parts]
        drawn: st.SearchStrategy[Any] = st.builds(shape.record, *parts)
    elif isinstance(shape, Items):
        drawn = st.lists(_shaped(shape.item, constants), max_size=3).map(tuple)
    elif isinstance(shape, Pairs):
        keys, items = _shaped(shape.key, constants), _shaped(shape.item, constants)
        drawn = st.dictionaries(keys, items, max_size=3)
    elif isinstance(shape, Member):
        drawn = st.sampled_from(list(shape.members))
    elif isinstance(shape, Money):
        drawn = st.integers(-99, 99).map(partial(_money, shape))
    else:
        drawn = _scalars(shape, constants)
    return st.none() | drawn if shape.nullable else drawn


def _money(shape: Money, cents: int) -> Decimal:
    most = 10**shape.precision - 1
    return Decimal(max(-most, min(cents, most))).scaleb(-shape.scale)


def _scalars(shape: Shape, constants: list[Any]) -> st.SearchStrategy[Any]:
    kind = shape.kind
    if isinstance(shape, Moment) and not shape.is_count:
        return st.integers(0, 3).map(lambda n: EPOCH + n * MICROSECOND)
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
        known = [float(value) for value in constants if isinstance(value, float)]
        return st.sampled_from([*FLOATS, *known]) | st.integers(-9_999, 9_999).map(_tenths)
    near = [value + n for value in constants if type(value) is int for n in (0, 1)]
    return st.sampled_from([0, 1, 2, *near]) | st.integers(-1_000, 1_000_000)


def _tenths(number: int) -> float:
    return number / 10


def case_of(fold: KeyedFold, drawn: Drawn) -> Case:
    """The case, with the instants of its events and runs."""
    steps, old_states = drawn
    runs: list[list[tuple[Step, Happened]]] = [[]]
    now_us = FIRST_US
    for number, step in enumerate(steps):
        # A run settles an instant wholly, so no cut is between ties.
        if number and steps[number - 1].ends_run and step.after_us:
            runs.append([])
        now_us += step.after_us
        runs[-1].append((step, Happened(_at(fold, step, now_us), now_us)))
    arriving: list[list[tuple[Happened, bool]]] = [[] for _ in runs]
    for index, run in enumerate(runs):
        for step, event in run:
            at = min(max(index + step.travels, 0), len(runs) - 1)
            arriving[at].append((event, at > index))
    arrived = [item for part in arriving for item in part]
    late = {number for number, (_, is_late) in enumerate(arrived) if is_late}
    parts = [
        Part([event for event, _ in part], _clock_us(runs, index))
        for index, part in enumerate(arriving)
    ]
    return Case(parts, late, old_states)


def _at(fold: KeyedFold, step: Step, now_us: int) -> Any:
    """The event with its times filled in: those are the case's, and none of the drawn ones."""
    times = {fold.time_us: now_us, EVENT_TIME_US: now_us, INGESTED_AT_US: now_us}
    named = {name: at_us for name, at_us in times.items() if name in fold.event._fields}  # type: ignore[attr-defined]
    return step.event._replace(**named)


def _clock_us(runs: Sequence[Sequence[tuple[Step, Happened]]], index: int) -> int:
    """To where a run comes: at least to its newest event, and not to one of the next run."""
    step, newest = runs[index][-1]
    reached_us = newest.time_us + step.wait_us
    if index + 1 == len(runs):
        return reached_us
    return min(reached_us, runs[index + 1][0][1].time_us - 1)
