"""Which landed rows become events: strict types, a time with a zone, no far future.

Plain Python, without Spark. Nothing is guessed: `1.0` is no bigint and a time without
a zone is no instant, because a wrong guess is found only after it has been counted.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from include.fold.admission import EPOCH, MICROSECOND
from include.settings import Field, Source

MIN_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
MAX_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
DAY_US = timedelta(days=1) // MICROSECOND
MIN_BIGINT, MAX_BIGINT = -(2**63), 2**63 - 1

# `fromisoformat` also takes week dates, times without a zone, and more with each Python.
INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)", re.ASCII
)
SHOWN_CHARACTERS = 80


class RefusedError(Exception):
    """The row is no event. `code` is stable, for queries; `reason` is for people."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class UnreadableFileError(Exception):
    """None of the file's rows can be trusted; the message says what is wrong with it."""


class Instant(NamedTuple):
    """A time that its file already stores as an instant (Parquet), in microseconds."""

    micros: int


class Event(NamedTuple):
    """An accepted row: its values in the order of `Source.fields`, and its time."""

    values: tuple[object, ...]
    event_time_us: int


def to_event(source: Source, values: Mapping[str, object], ingested_at_us: int) -> Event:
    """The event in a row that came in at `ingested_at_us`; RefusedError says why it is none.

    Fields that the source does not know are ignored.
    """
    typed = tuple(_typed(field, values.get(field.name)) for field in source.fields)
    event_time_us = _event_time_us(source.time_field, values.get(source.time_field))
    latest_us = ingested_at_us + source.max_future // MICROSECOND
    if event_time_us > latest_us:
        raise RefusedError(
            "future_time",
            f"{source.time_field} is more than {source.max_future} after its ingestion",
        )
    return Event(typed, event_time_us)


def _typed(field: Field, value: object) -> object:
    if value is None:
        if field.required:
            raise RefusedError("missing_field", field.name)
        return None
    return TYPES[field.type](field.name, value)


def _string(name: str, value: object) -> str:
    # JSON can escape half a character, which no UTF-8 file can store.
    if type(value) is not str or not _is_unicode(value):
        raise wrong_type(name, value, "string")
    return value


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _bigint(name: str, value: object) -> int:
    if type(value) is not int or not MIN_BIGINT <= value <= MAX_BIGINT:
        raise wrong_type(name, value, "bigint")
    return value


def _double(name: str, value: object) -> float:
    if type(value) is not float and type(value) is not int:
        raise wrong_type(name, value, "double")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise wrong_type(name, value, "double")
    return number


TYPES: Mapping[str, Callable[[str, object], object]] = {
    "string": _string,
    "bigint": _bigint,
    "double": _double,
}


def _event_time_us(name: str, value: object) -> int:
    if value is None:
        raise RefusedError("missing_field", name)
    micros = value.micros if isinstance(value, Instant) else _instant_us(name, value)
    if not MIN_US <= micros <= MAX_US:
        raise RefusedError("unreadable_time", f"{name} is outside the years 1 to 9999")
    return micros


def _instant_us(name: str, value: object) -> int:
    if not isinstance(value, str) or not INSTANT.fullmatch(value):
        raise RefusedError(
            "unreadable_time",
            f"{name} is {shown(value)}, expected ISO-8601 with a zone, as 2026-01-31T12:00:00Z",
        )
    try:
        # Digits past the microsecond are cut off, which is also what Parquet times get.
        return (datetime.fromisoformat(value) - EPOCH) // MICROSECOND
    except ValueError as error:
        raise RefusedError("unreadable_time", f"{name} is {shown(value)}: {error}") from None


def wrong_type(name: str, value: object, expected: str) -> RefusedError:
    """The refusal of a value that is not what its field stores."""
    return RefusedError("wrong_type", f"{name} is {shown(value)}, expected {expected}")


def shown(value: object) -> str:
    """A value as JSON for a message: ASCII, on one line, cut to a readable length."""
    try:
        text = json.dumps(value, default=str)
    except ValueError:  # an integer of more digits than Python prints
        text = type(value).__name__
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def check_columns(columns: list[str], source: Source, where: str) -> None:
    """UnreadableFileError when a column that rows need is missing, or there twice."""
    required = [source.time_field, *(field.name for field in source.fields if field.required)]
    missing = [name for name in required if name not in columns]
    if missing:
        raise UnreadableFileError(f"{where} without {', '.join(missing)}")
    known = {source.time_field, *(field.name for field in source.fields)}
    repeated = sorted(name for name in known if columns.count(name) > 1)
    if repeated:
        raise UnreadableFileError(f"{where} with {', '.join(repeated)} more than once")
