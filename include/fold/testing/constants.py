"""What a state function compares its events with: the constants in it, and those it holds.

Of the records' types alone no event would be a "purchase", and none come 30 minutes later.
"""

import dis
import types
from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from include.fold.admission import MICROSECOND
from include.fold.definition import KeyedFold
from include.fold.durations import duration_us

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
        return [value.__code__, *_cells(value), *_globals(value)]
    if isinstance(value, types.MethodType | partial):
        return [value.__func__] if isinstance(value, types.MethodType) else [value.func, value.args]
    if isinstance(getattr(type(value), "__call__", None), types.FunctionType):  # noqa: B004
        return [type(value).__call__, *vars(value).values()]
    return [value.__wrapped__] if hasattr(value, "__wrapped__") else []


_PLAIN = (int, float, str, tuple, frozenset, types.CodeType)


def _cells(function: types.FunctionType) -> list[Any]:
    return [cell.cell_contents for cell in function.__closure__ or ()]


def _globals(function: types.FunctionType) -> list[Any]:
    """What it names of its module: plain values, and functions written there, too."""
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    return [
        value
        for value in named
        if isinstance(value, (*_PLAIN, timedelta)) or _is_of(value, function)
    ]


def _is_of(value: Any, function: types.FunctionType) -> bool:
    return isinstance(value, types.FunctionType) and value.__module__ == function.__module__


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
