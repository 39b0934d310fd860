"""A row of typed values as text, of which the same values are read again.

What JSON has no value for is an object with one name that no producer gives: `{"<bytes>": "YWxp"}`. As
a text alone it would be taken for one, and be another value than what landed.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import NamedTuple, TypeGuard

import pyarrow as pa

from include.fold.sql_types import SqlType, sql_type
from include.landing.landed_times import Instant, LocalTime
from include.landing.landed_values import TypedText
from include.settings import Source


class Marks(NamedTuple):
    """What is no text, or number, that the source reads as what it is."""

    times: bool = False  # it has them written in another way than ISO-8601
    floats: bool = False  # by the same digits it would be a decimal, which takes no float
    types: bool = False  # whatever is no text, and each map: the field may be one that takes those


def marks_of(source: Source) -> Marks:
    """Of a value that lies under no field."""
    times = (source.times, *(field.times for field in source.fields if field.times))
    return Marks(times=any(each.format != "iso" for each in times))


def raw_writer(source: Source) -> Callable[[Mapping[str, object]], str]:
    """What makes `raw` of the source's rows."""
    marks, kinds = marks_of(source), _kinds_of_columns(source)
    decimals = [field.landed for field in source.fields if "decimal(" in field.type]
    exact = {*decimals, *(path.partition(".")[0] for path in decimals)}

    def raw(row: Mapping[str, object]) -> str:
        known = {
            name: _column_as_json(of, kinds.get(name), marks._replace(floats=name in exact))
            for name, of in row.items()
        }
        return json.dumps(known, ensure_ascii=False)

    return raw


def _kinds_of_columns(source: Source) -> dict[str, SqlType]:
    """Of columns that are read as one type alone."""
    asked = [(source.time_field, "timestamp"), *((f.landed, f.type) for f in source.fields)]
    kinds: dict[str, set[SqlType | None]] = {}
    for path, kind in asked:
        kinds.setdefault(path, set()).add(sql_type(kind))
        if "." in path:  # it may lead into a map
            kinds.setdefault(path.partition(".")[0], set()).add(None)
    only = ((name, next(iter(found))) for name, found in kinds.items() if len(found) == 1)
    return {name: kind for name, kind in only if kind is not None}


# Of these a field of the type reads what it would of the text, so that `raw` is as people write it.
READ_ALIKE: dict[str, tuple[type, ...]] = {
    "date": (date,),
    "timestamp": (Instant, LocalTime, datetime),
    "timestamp_ntz": (Instant, LocalTime, datetime),
    "decimal": (Decimal,),
}


def _column_as_json(value: object, kind: SqlType | None, marks: Marks) -> object:
    if kind is not None and isinstance(value, READ_ALIKE.get(kind.name, ())):
        return _as_json(value, marks)
    typed = marks._replace(types=True)
    if kind is not None and kind.name == "map" and kind.parts[0].name == "string":
        pairs = value if _is_map(value) else []
        names = {key for key, _ in pairs if type(key) is str}
        if pairs and len(names) == len(pairs):
            return {key: _as_json(of, typed) for key, of in pairs}
    return _as_json(value, typed)


def row_as_json(row: Mapping[str, object], marks: Marks) -> str:
    """The row as one JSON object."""
    return json.dumps(_as_json(row, marks), ensure_ascii=False)


class Unreadable(str):
    """The text of a value that Python has none for, such as a date after the year 9999."""

    __slots__ = ()


# Of a value; before a colon, how a key begins that is one.
BYTES = "<bytes>"  # in Base64
UNREADABLE = "<unreadable>"  # also what no field takes, such as a duration
DOUBLE = "<double>"  # nan, inf, -inf; of others where they would be taken for decimals
INSTANT, LOCAL_TIME = "<instant>", "<local time>"
DATE, TIME, DECIMAL = "<date>", "<time>", "<decimal>"
TEXT = "<text>"  # where a text would be taken for Base64
RESTORE: dict[str, Callable[[str], object]] = {
    BYTES: partial(base64.b64decode, validate=True),
    UNREADABLE: Unreadable,
    DOUBLE: float,
    INSTANT: datetime.fromisoformat,
    LOCAL_TIME: datetime.fromisoformat,
    DATE: date.fromisoformat,
    TIME: time.fromisoformat,
    DECIMAL: Decimal,
    TEXT: TypedText,
}
MAP = "<map>"  # pairs of keys and values, as Parquet has it


def has_marks(text: str) -> bool:
    """Whether a text may have what `restored` knows."""
    return any(name in text for name in (*RESTORE, MAP))


def restored(value: object) -> object:
    """A value that was read of such a text, as it was before. RecursionError of one too deep."""
    if isinstance(value, list):
        return [restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and (known := _known(value)) is not None:
        return known
    members = {name: restored(of) for name, of in value.items()}
    if any(_mark_of(name) for name in members):  # a map, which Parquet has in pairs
        return [(_key(name), of) for name, of in members.items()]
    return members


def _known(value: Mapping[str, object]) -> object:
    ((name, text),) = value.items()
    if name == MAP and _are_pairs(text):
        return [(restored(key), restored(of)) for key, of in text]
    restore = RESTORE.get(name)
    return None if restore is None or not isinstance(text, str) else _or_none(restore, text)


def _are_pairs(value: object) -> TypeGuard[list[list[object]]]:
    return isinstance(value, list) and all(isinstance(of, list) and len(of) == 2 for of in value)


def _mark_of(key: str) -> str | None:
    mark, colon, _ = key.partition(":")
    return mark if colon and mark in RESTORE else None


def _key(name: str) -> object:
    mark = _mark_of(name)
    known = _or_none(RESTORE[mark], name.removeprefix(f"{mark}:")) if mark else None
    return name if known is None else known


def _or_none(restore: Callable[[str], object], text: str) -> object:
    """None: it is none of ours, but what somebody has corrected, or has landed so."""
    try:
        return restore(text)
    except (ValueError, InvalidOperation):
        return None


def _key_as_json(key: object, marks: Marks) -> str:
    value = _as_json(key, marks)
    if isinstance(value, dict) and len(value) == 1 and (mark := next(iter(value))) in RESTORE:
        return f"{mark}:{value[mark]}"
    return str(value)


def _as_json(value: object, marks: Marks) -> object:
    if isinstance(value, Instant | LocalTime | datetime):
        return _time(value, marks)
    if isinstance(value, bytes):
        return {BYTES: base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {name: _as_json(of, marks) for name, of in value.items()}
    if _is_map(value):
        return _map(value, marks)
    if isinstance(value, list):
        return [_as_json(item, marks) for item in value]
    if isinstance(value, Decimal) and _is_double(value):
        return float(value)
    if isinstance(value, float) and (marks.floats or not math.isfinite(value)):
        return {DOUBLE: str(value)}
    if value is None or type(value) in (str, int, float, bool):
        return value
    return _as_text(value, marks)


def _as_text(value: object, marks: Marks) -> object:
    """What JSON has no type for."""
    text = value.isoformat() if isinstance(value, date | time) else str(value)
    if isinstance(value, Unreadable):
        return {UNREADABLE: text}
    known = (
        (TEXT, TypedText),
        (DATE, date),
        (TIME, time),
        (DECIMAL, Decimal),
        (UNREADABLE, object),
    )
    mark = next(mark for mark, kind in known if isinstance(value, kind))
    return {mark: text} if marks.types else text


def _is_map(value: object) -> TypeGuard[list[tuple[object, object]]]:
    return isinstance(value, list) and bool(value) and all(type(of) is tuple for of in value)


def _map(pairs: list[tuple[object, object]], marks: Marks) -> object:
    """An object, unless it would lose something: what its keys are, or one of two that are alike."""
    if not marks.types:
        members = {_key_as_json(key, marks): _as_json(of, marks) for key, of in pairs}
        if len(members) == len(pairs):
            return members
    return {MAP: [[_as_json(key, marks), _as_json(of, marks)] for key, of in pairs]}


def _time(value: Instant | LocalTime | datetime, marks: Marks) -> object:
    if isinstance(value, datetime):
        is_instant, text = value.tzinfo is not None, value.isoformat()
    else:
        is_instant = isinstance(value, Instant)
        text = str(pa.scalar(value.micros, pa.timestamp("us")).cast(pa.string()).as_py())
        text += "Z" if is_instant else ""
    is_marked = marks.times or marks.types
    return {INSTANT if is_instant else LOCAL_TIME: text} if is_marked else text


def _is_double(value: Decimal) -> bool:
    """Whether JSON's number, which many read as a double, is exactly it."""
    return value.is_finite() and Decimal(repr(float(value))) == value
