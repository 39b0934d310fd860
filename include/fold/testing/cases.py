"""Cases for the law checker: events and cuts, drawn from record types and the function's constants.

Few keys, ties in time, and steps of exactly the spans that the function knows, or one
microsecond beside them: that is where functions go wrong.
"""

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
