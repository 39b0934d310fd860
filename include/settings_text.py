"""The settings of a stream as the text that they are pinned by.

Each process has to write the same, or a run would find others than its state was made with. What
Python writes in another order (a set of texts) or as an address (a function) is not the same.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from numbers import Number
from types import BuiltinFunctionType, NoneType
from typing import Any

from include.lake.errors import SettingsError

ADDRESS = re.compile(r"<[^'\"]* at 0x[0-9a-fA-F]+")
# Of these a set has the same order in each process: their hash goes by no seed.
WITHOUT_SEED = (int, float, Decimal, timedelta)
# Of these Python writes all; of an array, say, no more than its ends.
OF_TIME = (date, time, timedelta, tzinfo)
TOLD_WHOLE = (str, bytes, Number, *OF_TIME, Enum, type, BuiltinFunctionType, NoneType)
PATTERN_LENGTH = 200  # of what Python writes of a pattern; the rest it leaves out


def settings_text(stream: str, settings: Mapping[str, Any]) -> str:
    """JSON, by name; SettingsError for a setting that each process would write otherwise."""
    written = (f"{json.dumps(name)}: {_written(stream, name, settings[name])}" for name in settings)
    return f"{{{', '.join(sorted(written))}}}"


def _written(stream: str, name: str, value: object) -> str:
    try:
        _json(value)  # which has no dict with other keys than texts and numbers
        return _json(_with_order(value))
    except TypeError as error:
        raise SettingsError(
            f"stream {stream}: settings= {name} cannot be pinned: {error}; give texts, numbers, "
            "times, and lists, dicts and sets of them",
            subject=name,
        ) from error


def _json(value: object) -> str:
    plain = str(value) if isinstance(value, timedelta) else value
    return json.dumps(plain, sort_keys=True, default=_text)


def _with_order(value: object) -> object:
    """The same, but dicts of which JSON would keep less than they have, their order or whether a
    key is 2 or "2", as the list of their pairs."""
    if isinstance(value, list | tuple):
        return [_with_order(part) for part in value]
    if not isinstance(value, dict):
        return value
    is_kept = all(isinstance(key, str) for key in value) and list(value) == sorted(value)
    inside = {key: _with_order(part) for key, part in value.items()}
    return inside if is_kept else [[repr(key), part] for key, part in inside.items()]


def _text(value: object) -> str:
    """What Python writes of it, but sets in order. TypeError as JSON's own."""
    if isinstance(value, set | frozenset):
        return _text_of_set(value)
    text = repr(value)
    if ADDRESS.search(text) or any(_has_no_order(part) for part in _parts(value)):
        raise TypeError(f"{text} is written otherwise by each process")
    if not _is_told_whole(value):
        raise TypeError(f"Python may not write all of {text}")
    return text


def _is_told_whole(value: object) -> bool:
    if isinstance(value, re.Pattern):
        return len(repr(value.pattern)) <= PATTERN_LENGTH
    if is_dataclass(value) and not all(field.repr for field in fields(value)):
        return False
    is_known = is_dataclass(value) or isinstance(value, tuple | list | dict | set | frozenset)
    return isinstance(value, TOLD_WHOLE) or (
        is_known and all(_is_told_whole(part) for part in _parts(value))
    )


def _text_of_set(value: set[Any] | frozenset[Any]) -> str:
    texts = [_text(member) for member in value]
    inside = ", ".join(sorted(texts) if _has_no_order(value) else texts)
    if not texts:
        return repr(value)
    return f"{{{inside}}}" if type(value) is set else f"{type(value).__name__}({{{inside}}})"


def _has_no_order(value: object) -> bool:
    """Whether it has a set, with which each process begins elsewhere."""
    if isinstance(value, set | frozenset):
        return len(value) > 1 and not all(_is_without_seed(member) for member in value)
    return any(_has_no_order(part) for part in _parts(value))


def _is_without_seed(value: object) -> bool:
    if isinstance(value, tuple):
        return all(_is_without_seed(part) for part in value)
    return isinstance(value, WITHOUT_SEED)


def _parts(value: object) -> Iterator[object]:
    """What Python writes within it."""
    if is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, field.name) for field in fields(value))
    elif isinstance(value, Enum):
        yield value.value
    elif isinstance(value, tuple | list | set | frozenset):
        yield from value
    elif isinstance(value, dict):
        yield from (*value, *value.values())
