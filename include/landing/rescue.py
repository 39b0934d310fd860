"""Rescued columns and refused rows as JSON text, and how the same values are read again from it."""

import base64
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeGuard

import pyarrow as pa

from include.fold.records import SqlType, sql_type
from include.landing.landed_values import (
    Instant,
    LocalTime,
    RefusedError,
    Row,
    Text,
    TypedText,
    converter,
    is_unicode,
    value_at,
    value_of_text,
)
from include.origins import ISO
from include.settings import Source, Times


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
    # JSON's number, which many read as a double, is exactly it.
    if isinstance(value, Decimal) and value.is_finite() and Decimal(repr(float(value))) == value:
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


# What is known of a row, by name: all of it (None), or some members.
Known = dict[str, "Known | None"]
NOTHING: Known = {}


class Rescue:
    """Of one file: values of its rows that are not, or not as a whole, fields of the source."""

    def __init__(self, source: Source) -> None:
        paths = [source.time_field, *(field.landed for field in source.fields), *source.ignored]
        self._known, self._marks = _known_of(paths), marks_of(source)
        self._dotted = [(path, path.partition(".")[0]) for path in paths if "." in path]
        # Whether there is nothing to rescue. Quick, as nearly all rows have nothing; a source that
        # rescues nothing knows everything.
        self.is_known = self._checker() if source.rescue else lambda row: True
        self._left = source.max_file_bytes
        self._counts: Counter[str] = Counter()

    def _checker(self) -> Callable[[Row], bool]:
        has_all = frozenset(self._known).issuperset
        nested = [(name, of) for name, of in self._known.items() if of]
        if not self._dotted:
            return has_all

        def is_known(row: Row) -> bool:
            if not has_all(row) or self._unread(row):
                return False
            return not any(any(_unknown(name, row.get(name), of)) for name, of in nested)

        return is_known

    def _unread(self, row: Row) -> list[str]:
        """Names at which a path would begin that the row has as a name as well, which is taken."""
        return [first for path, first in self._dotted if path in row and row.get(first) is not None]

    def text(self, row: Row) -> str | None:
        """These values as a JSON object, name to value as landed; None of nothing, or of nulls alone.
        Of many rows, better asked only where `is_known` is False.

        RefusedError when it is nested too deeply, or all of the file's come to more than a file may.
        """
        if self.is_known(row):
            return None
        paths = {
            name: list(_unknown(name, value, self._known.get(name, NOTHING)))
            for name, value in row.items()
        } | {name: [name] for name in self._unread(row)}
        unknown = {name: row[name] for name, of in paths.items() if of}
        if not unknown:
            return None
        text = _text(unknown, self._marks)
        self._left -= len(text)
        if self._left < 0:
            names = ", ".join(name for name, _ in self._counts.most_common(3))
            raise RefusedError(
                "unknown_fields",
                f"the file's other fields ({names}, ...) come to more than max_file_bytes: declare "
                "them, ignore them, or split it",
            )
        self._counts.update(chain(*paths.values()))
        return text

    def fields(self) -> str | None:
        """How many rows had each of them: JSON; None without any."""
        return json.dumps(self._counts) if self._counts else None


def _known_of(paths: Sequence[str]) -> Known:
    known: Known = {}
    for path in sorted(paths, key=lambda path: path.count(".")):  # before what lies within it
        known[path] = None  # also as a whole name, which is taken first
        members: Known | None = known
        *steps, last = path.split(".")
        for step in steps:
            # What is known as a whole has no members to look at.
            members = None if members is None else members.setdefault(step, {})
        if members is not None:
            members[last] = None
    return known


def _unknown(path: str, value: object, known: Known | None) -> Iterator[str]:
    """The paths of what is not known of the value at `path`."""
    if value is None or known is None:
        return
    if not known or not isinstance(value, dict):
        yield path
        return
    for name, of in value.items():
        yield from _unknown(f"{path}.{name}", of, known.get(name, NOTHING))


def _text(unknown: Row, marks: Marks) -> str:
    try:
        text = json.dumps(_as_json(unknown, marks), ensure_ascii=False)
    except RecursionError:
        raise RefusedError("not_json", "nested too deeply") from None
    # JSON can escape half a character, which no column can store but as an escape.
    return text if is_unicode(text) else json.dumps(json.loads(text))


def read_rescued(
    kind: str, path: str, texts: Sequence[str | None], times: Times = ISO
) -> list[object]:
    """The field at `path`, as a `kind`, of what was rescued of rows: null where that is no such value.

    A text is read as a cell of CSV is, a time as `times` says.
    """
    convert, find, parsed = converter(kind, times), value_at(path), sql_type(kind)

    def read(text: str | None) -> object:
        if text is None or (value := find(json.loads(text, parse_float=Decimal))) is None:
            return None
        try:
            value = restored(value) if has_marks(text) else value
            if type(value) is str:  # (not Unreadable, which is none of any type)
                return convert(path, value if parsed.name == "string" else Text(value))
            return convert(path, _with_numbers(parsed, value))
        except (RefusedError, RecursionError):
            return None

    return list(map(read, texts))


def _with_numbers(kind: SqlType, value: object) -> object:
    """Floats that are kept as texts, where they are more digits than a float has: as numbers."""
    if isinstance(value, str) and kind.name in ("float", "double"):
        return value_of_text(kind, "", value)
    if isinstance(value, list) and kind.name == "array":
        return [_with_numbers(kind.parts[0], item) for item in value]
    if isinstance(value, dict) and kind.name == "map":
        return {key: _with_numbers(kind.parts[1], item) for key, item in value.items()}
    if isinstance(value, dict) and kind.name == "struct":
        parts = zip(kind.names, kind.parts, strict=True)
        return {name: _with_numbers(part, value.get(name)) for name, part in parts}
    return value


def text_typer(source: Source) -> Callable[[Row], Row]:
    """What tells the texts of a row from Base64, where the source reads some."""
    paths = [field.landed for field in source.fields if "binary" in field.type]
    columns = {*paths, *(path.partition(".")[0] for path in paths)}
    if not columns:
        return lambda row: row
    return lambda row: {name: _typed(of) if name in columns else of for name, of in row.items()}


def _typed(value: object) -> object:
    if type(value) is str:
        return TypedText(value)
    if type(value) is list:
        return [_typed(item) for item in value]
    if type(value) is tuple:  # a key of a map, and its value
        return tuple(_typed(part) for part in value)
    if type(value) is dict:
        return {name: _typed(of) for name, of in value.items()}
    return value
