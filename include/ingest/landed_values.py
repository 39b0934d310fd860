"""Landed values as the type of their field, or refused with a reason; what no field has is rescued.

Nothing is guessed: `1.0` is no bigint, and a decimal never goes through a float, because a wrong
guess is found only after it has been counted. Rescued and refused rows are kept as JSON text.
"""

import base64
import json
import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, NoReturn, TypeGuard
from zoneinfo import ZoneInfo

import pyarrow as pa

from include import connectors
from include.connectors import MESSAGE, KafkaTopic
from include.fold.admission import EPOCH, MICROSECOND
from include.fold.records import SqlType, exact_decimal, sql_type
from include.settings import Field, Source, Times

SHOWN_CHARACTERS = 80


class RefusedError(Exception):
    """The row is no event. `code` is stable, for queries; `reason` is for people."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class UnreadableFileError(Exception):
    """None of the file's rows can be trusted; the message says what is wrong with it."""


def wrong_type(name: str, value: object, expected: str) -> RefusedError:
    return RefusedError("wrong_type", f"{name} is {shown(value)}, expected {expected}")


def shown(value: object) -> str:
    """A value as JSON for a message: ASCII, on one line, of a readable length."""
    try:
        text = json.dumps(value, default=str)
    except (ValueError, RecursionError):  # an integer of more digits than Python prints; too deep
        text = type(value).__name__
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


MIN_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
MAX_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
# What one of each format is, in microseconds.
EPOCHS = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}
MAX_DIGITS = 20
# `fromisoformat` also takes week dates, times without a zone, and more with each Python.
ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?"
INSTANT = re.compile(rf"{ISO}(Z|[+-]\d\d(:?\d\d)?)", re.ASCII)
LOCAL = re.compile(ISO, re.ASCII)
NUMBER = re.compile(r"[+-]?\d{1,20}(\.\d{1,20})?", re.ASCII)


class Instant(NamedTuple):
    """A time that its file already stores as an instant (Parquet), in microseconds."""

    micros: int


class LocalTime(NamedTuple):
    """A time without a zone: microseconds since 1970 by a clock on a wall."""

    micros: int


def instant_us(name: str, value: object, times: Times) -> int:
    """Microseconds since 1970, UTC; raises RefusedError when it is not sure which these are."""
    if isinstance(value, Instant):
        return _in_range(name, value.micros)
    if isinstance(value, LocalTime):
        value = (EPOCH + _in_range(name, value.micros) * MICROSECOND).replace(tzinfo=None)
    elif times.format in EPOCHS and not isinstance(value, datetime):
        return _in_range(name, _epoch_us(name, value, times.format))
    # Digits past the microsecond are cut off, which is also what Parquet times get.
    return _of_datetime(name, value, times)


def _epoch_us(name: str, value: object, unit: str) -> int:
    is_number = type(value) in (int, float, Decimal)
    if is_number or (isinstance(value, str) and NUMBER.fullmatch(value)):
        # A float's shortest text is what was meant by it: 0.1 seconds are 100,000 microseconds.
        with suppress(ArithmeticError, ValueError):  # (the latter: it is no number)
            exact = Decimal(str(value)) * EPOCHS[unit]
            if not exact or abs(exact.adjusted()) <= MAX_DIGITS:  # or an int would fill the memory
                return math.floor(exact)
    raise _unreadable(name, value, unit)


def _of_datetime(name: str, value: object, times: Times) -> int:
    try:
        found = _parsed(value, times.format)
        if found is not None and found.tzinfo is not None:
            return _in_range(name, (found - EPOCH) // MICROSECOND)
        if found is not None and times.zone is not None:
            return _zoned_us(name, found, times.zone)
    except (ValueError, OverflowError) as error:
        raise RefusedError("unreadable_time", f"{name} is {shown(value)}: {error}") from None
    raise _unreadable(name, value, f"{times.format}, with a zone in it or in the declared times")


def _parsed(value: object, format: str) -> datetime | None:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        return None
    if format != "iso":
        return datetime.strptime(value, format)  # noqa: DTZ007 (the zone is declared)
    is_iso = INSTANT.fullmatch(value) or LOCAL.fullmatch(value)
    return datetime.fromisoformat(value) if is_iso else None


def _in_range(name: str, micros: int) -> int:
    if not MIN_US <= micros <= MAX_US:
        raise RefusedError("unreadable_time", f"{name} is outside the years 1 to 9999")
    return micros


def local_us(name: str, value: object) -> int:
    """A time without a zone, as microseconds since 1970 on the same wall."""
    if isinstance(value, LocalTime):
        return _in_range(name, value.micros)
    try:
        wall = _parsed(value, "iso")
        if wall is not None and wall.tzinfo is None:
            return (wall.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
    except ValueError:  # no such day
        pass
    raise _unreadable(name, value, "ISO-8601 without a zone")


def _zoned_us(name: str, wall: datetime, of: str) -> int:
    """The instant of a time on the wall of the zone, if there is one and only one."""
    zone = ZoneInfo(of)
    first, second = (wall.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() != second.utcoffset():
        said = f"{name} is {wall.isoformat()}, which {of} had never, or twice"
        raise RefusedError("unreadable_time", said)
    return _in_range(name, (first - EPOCH) // MICROSECOND)


def _unreadable(name: str, value: object, expected: str) -> RefusedError:
    return RefusedError("unreadable_time", f"{name} is {shown(value)}, expected {expected}")


INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)  # Python refuses to convert thousands
BOOLEANS = {"true": True, "false": False}


class Text(str):
    """A value from a format that has nothing but text (CSV)."""

    __slots__ = ()


# Of a field's name, for messages, and a landed value that is not null.
Convert = Callable[[str, object], object]


def converter(kind: str, times: Times) -> Convert:
    """A function that makes a `kind` of a landed value, or raises RefusedError."""
    parsed = sql_type(kind)
    convert = _converter(parsed, times)
    if not is_read_of_text(kind):
        return convert

    def convert_text_too(name: str, value: object) -> object:
        if type(value) is Text:
            value = value_of_text(parsed, name, value)
        return convert(name, value)

    return convert_text_too


def _converter(kind: SqlType, times: Times) -> Convert:
    if kind.name in INTEGER_BITS:
        return partial(_integer, kind.name, 2 ** (INTEGER_BITS[kind.name] - 1))
    if kind.name == "timestamp":
        return lambda name, value: instant_us(name, value, times)
    if kind.name in NESTED:
        parts = [_converter(part, times) for part in kind.parts]
        return partial(NESTED[kind.name], kind, parts)
    if kind.name == "decimal":
        return partial(_decimal, kind)
    return PLAIN[kind.name]


def _boolean(name: str, value: object) -> bool:
    if type(value) is not bool:
        raise wrong_type(name, value, "boolean")
    return value


def _integer(kind: str, beyond: int, name: str, value: object) -> int:
    if type(value) is not int or not -beyond <= value < beyond:
        raise wrong_type(name, value, kind)
    return value


def _double(name: str, value: object) -> float:
    try:
        if type(value) in (float, int, Decimal) and math.isfinite(number := float(value)):  # type: ignore[arg-type]
            return number
    except OverflowError:
        pass
    raise wrong_type(name, value, "double")


def _float(name: str, value: object) -> float:
    try:
        number: float = struct.unpack("<f", struct.pack("<f", _double(name, value)))[0]
    except OverflowError:
        raise wrong_type(name, value, "float") from None
    return number


def _decimal(kind: SqlType, name: str, value: object) -> Decimal:
    is_text = isinstance(value, str) and DECIMAL.fullmatch(value)
    if not is_text and type(value) not in (int, Decimal):
        raise wrong_type(name, value, str(kind))
    number = exact_decimal(Decimal(value), kind.precision, kind.scale)  # type: ignore[arg-type]
    if number is None:
        raise wrong_type(name, value, str(kind))
    return number


def _string(name: str, value: object) -> str:
    # JSON can escape half a character, which no UTF-8 file can store.
    if type(value) is not str or not is_unicode(value):
        raise wrong_type(name, value, "string")
    return value


def is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _binary(name: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except ValueError:
        pass
    raise wrong_type(name, value, "binary, as base64")


def _date(name: str, value: object) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        if isinstance(value, str) and DAY.fullmatch(value):
            return date.fromisoformat(value)
    except ValueError:  # no such day
        pass
    raise wrong_type(name, value, "date, as 2026-01-31")


PLAIN: dict[str, Convert] = {"boolean": _boolean, "double": _double, "float": _float}
PLAIN |= {"string": _string, "binary": _binary, "date": _date, "timestamp_ntz": local_us}


def _array(kind: SqlType, parts: list[Convert], name: str, value: object) -> list[object]:
    if not isinstance(value, list):
        raise wrong_type(name, value, str(kind))
    return [_or_none(parts[0], f"{name}[{index}]", item) for index, item in enumerate(value)]


def _struct(kind: SqlType, parts: list[Convert], name: str, value: object) -> dict[str, object]:
    """Members that the type does not have are passed over, and those that are missing are null."""
    if not isinstance(value, dict):
        raise wrong_type(name, value, str(kind))
    return {
        member: _or_none(part, f"{name}.{member}", value.get(member))
        for member, part in zip(kind.names, parts, strict=True)
    }


def _map(
    kind: SqlType, parts: list[Convert], name: str, value: object
) -> list[tuple[object, object]]:
    """An object, or as Parquet has it: pairs. Keys that are no text are read from theirs."""
    items: Iterable[Any]
    if isinstance(value, dict):
        key_kind = kind.parts[0]
        items = ((value_of_text(key_kind, f"{name} key", key), of) for key, of in value.items())
    elif isinstance(value, list) and all(isinstance(item, tuple) for item in value):
        items = value
    else:
        raise wrong_type(name, value, str(kind))
    pairs = [
        (parts[0](f"{name} key", key), _or_none(parts[1], f"{name}[{key}]", of))
        for key, of in items
    ]
    # (A nested key is a list or a dict, which no set takes.)
    if len({repr(key) if type(key) in (list, dict) else key for key, _ in pairs}) < len(pairs):
        raise RefusedError("wrong_type", f"{name} has a key twice")
    return pairs


Nested = Callable[[SqlType, list[Convert], str, object], object]
NESTED: dict[str, Nested] = {"array": _array, "struct": _struct, "map": _map}


def _or_none(convert: Convert, name: str, value: object) -> object:
    return None if value is None else convert(name, value)


def is_read_of_text(kind: str) -> bool:
    """True if a text stands for something else than itself, as in `value_of_text`."""
    name = sql_type(kind).name
    return name in {"boolean", "float", "double", *INTEGER_BITS, *NESTED}


def value_of_text(kind: SqlType, name: str, text: str) -> object:
    """The value that a text stands for, as JSON would have it."""
    if kind.name == "boolean":
        return BOOLEANS.get(text.lower(), str(text))
    if kind.name in INTEGER_BITS:
        return int(text) if INTEGER.fullmatch(text) else str(text)
    if kind.name in ("float", "double"):
        return float(text) if DECIMAL.fullmatch(text) else str(text)
    if kind.name not in NESTED:
        return str(text)
    try:
        return EXACT_JSON.decode(text)
    except (ValueError, InvalidOperation, RecursionError):
        raise wrong_type(name, text, "JSON") from None


def _refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and the like, which Python's `json` accepts."""
    raise ValueError(f"{name} is no JSON number")


# Not json.loads, which would make one a row.
JSON = json.JSONDecoder(parse_constant=_refuse_constant)
# A decimal is not to go through a float; a double is the same either way.
EXACT_JSON = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=Decimal)


Row = Mapping[str, object]


class Event(NamedTuple):
    """An accepted row: its values in the order of `Source.fields`, and its time."""

    values: tuple[object, ...]
    event_time_us: int


# Of a row and of when it came in, in microseconds.
ToEvent = Callable[[Row, int], Event]


def reader_of_events(source: Source) -> ToEvent:
    """A function of a row and its time of ingestion that gives an event, or raises RefusedError."""
    fields = [_reader_of_field(field, source) for field in source.fields]
    time_of = value_at(source.time_field)
    max_future_us = source.max_future // MICROSECOND

    def to_event(values: Row, ingested_at_us: int) -> Event:
        typed = tuple([read(values) for read in fields])
        time = time_of(values)
        if time is None:
            raise RefusedError("missing_field", source.time_field)
        event_time_us = instant_us(source.time_field, time, source.times)
        if event_time_us > ingested_at_us + max_future_us:
            said = f"{source.time_field} is more than {source.max_future} after its ingestion"
            raise RefusedError("future_time", said)
        return Event(typed, event_time_us)

    return to_event


def _reader_of_field(field: Field, source: Source) -> Callable[[Row], object]:
    value_of = value_at(field.landed)
    convert = converter(field.type, field.times or source.times)
    name = field.landed

    def read(values: Row) -> object:
        value = value_of(values)
        if value is not None:
            return convert(name, value)
        if field.required:
            raise RefusedError("missing_field", name)
        return None

    return read


def value_at(path: str) -> Callable[[Row], object]:
    """A function of a row that gives its value at a dotted path, as one name or step by step."""
    if "." not in path:
        return lambda values: values.get(path)
    steps = path.split(".")

    def find(values: Row) -> object:
        if path in values:
            return values[path]
        found: object = values
        for step in steps:
            if not isinstance(found, Mapping):
                return None
            found = found.get(step)
        return found

    return find


def columns_to_read(columns: list[str], source: Source, where: str) -> list[str]:
    """The columns of a file to read, the time first; UnreadableFileError for one missing, or there twice."""
    asked = {field.landed: field.required for field in source.fields if not field.from_folder}
    asked = {source.time_field: True} | asked | {source.time_field: True}  # first, and needed
    found = {
        path: next((name for name in (path, path.split(".")[0]) if name in columns), None)
        for path in asked
    }
    if missing := [path for path, name in found.items() if asked[path] and name is None]:
        raise UnreadableFileError(f"{where} without {', '.join(missing)}: it has {shown(columns)}")
    others = [name for name in columns if name not in source.ignored] if source.rescue else []
    read, counts = list(dict.fromkeys([*filter(None, found.values()), *others])), Counter(columns)
    if twice := [name for name in read if counts[name] > 1]:
        said = f"{where} with columns twice, declare them `ignored`: {shown(twice)}"
        raise UnreadableFileError(said)
    return read


def json_text(row: Row) -> str:
    """A row as JSON: bytes are Base64, times and dates ISO-8601, a map of texts an object."""
    text = json.dumps(_plain(row), ensure_ascii=False)
    # JSON can escape half a character, which no column can store but as an escape.
    return text if is_unicode(text) else json.dumps(json.loads(text))


def _plain(value: object) -> object:
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, Mapping):
        return {name: _plain(of) for name, of in value.items()}
    if _is_map(value):
        pairs = [(_plain(key), _plain(of)) for key, of in value]
        members = {str(key): of for key, of in pairs}
        return members if len(members) == len(pairs) else pairs
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    # JSON's number, which many read as a double, is exactly it.
    if isinstance(value, Decimal) and value.is_finite() and Decimal(repr(float(value))) == value:
        return float(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Instant | LocalTime):  # also of a year that Python has not
        text = str(pa.scalar(value.micros, pa.timestamp("us")).cast(pa.string()).as_py())
        return f"{text}Z" if isinstance(value, Instant) else text
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _is_map(value: object) -> TypeGuard[list[tuple[object, object]]]:
    """True for a map as Parquet has it: pairs."""
    return isinstance(value, list) and bool(value) and all(type(of) is tuple for of in value)


class TypedRows:
    """Rows of a format whose values have types that their text does not tell."""

    def values(self, item: Row) -> Row:
        return item

    def raw(self, item: Row) -> str:
        return json_text(item)


Steps = tuple[str, ...]  # the names that lead to a value of a row


class Rescue:
    """Finds values of a file's rows that are not, or not as a whole, fields of the source."""

    def __init__(self, source: Source) -> None:
        paths = [source.time_field, *(field.landed for field in source.fields), *source.ignored]
        if isinstance(source.connector, KafkaTopic):
            paths.append(MESSAGE)
        # Also as a whole name, which is taken first.
        self._known = {(path,) for path in paths} | {tuple(path.split(".")) for path in paths}
        self._above = {steps[:n] for steps in self._known for n in range(1, len(steps))}
        # True if a row has known names alone: quick, as nearly all have.
        self._names = frozenset(steps[0] for steps in self._known if len(steps) == 1)
        self.has_all = self._names.issuperset if source.rescue else lambda row: True
        self.counts: Counter[str] = Counter()  # of each that is no field, its rows

    def unknown(self, row: Row) -> dict[str, list[str]]:
        """The names of values to rescue, with the paths in each that are no field."""
        if self.has_all(row):
            return {}
        found = {name: self._unknown((name,), row[name]) for name in row.keys() - self._names}
        return {name: paths for name, paths in found.items() if paths}

    def text(self, row: Row) -> str | None:
        """The values to rescue as a JSON object, as they landed; None without any."""
        if not (unknown := self.unknown(row)):
            return None
        try:
            text = json_text({name: value for name, value in row.items() if name in unknown})
        except RecursionError:
            raise RefusedError("not_json", "nested too deeply") from None
        self.counts.update(chain(*unknown.values()))
        return text

    def _unknown(self, steps: Steps, value: object) -> list[str]:
        if value is None or steps in self._known:
            return []
        if steps not in self._above or not isinstance(value, dict):
            return [".".join(steps)]
        return [path for name, of in value.items() for path in self._unknown((*steps, name), of)]


def read_rescued(
    kind: str, path: str, texts: Sequence[str | None], times: Times = connectors.ISO
) -> list[object]:
    """The values of a field, at `path`, in texts of rescued values; None where it is no `kind`.

    A text is read as a cell of CSV is; a time by `times`, or in ISO-8601, as it is kept of Parquet.
    """
    find, parsed = value_at(path), sql_type(kind)
    converters = [converter(kind, each) for each in (times, replace(times, format="iso"))]

    def read(text: str | None) -> object:
        if text is None or (value := find(json.loads(text, parse_float=Decimal))) is None:
            return None
        if type(value) is str and parsed.name != "string":
            value = Text(value)
        for convert in converters:
            try:
                return convert(path, _with_numbers(parsed, value))
            except (RefusedError, RecursionError):
                continue
        return None

    return list(map(read, texts))


def _with_numbers(kind: SqlType, value: object) -> object:
    """The value with numbers in place of texts, which keep floats of more digits than a float has."""
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
