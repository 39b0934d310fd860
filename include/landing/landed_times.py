"""Landed times as instants: by the format and the zone that their source declares."""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from include.fold.admission import EPOCH, MICROSECOND
from include.fold.instants import no_such_day
from include.landing.refusals import RefusedError, shown
from include.settings import Times

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
    """A time that its file stores without a zone: microseconds since 1970 by some clock on a wall."""

    micros: int


def instant_us(name: str, value: object, times: Times) -> int:
    """Microseconds since 1970, UTC; RefusedError when it is not sure which these are."""
    return _in_range(name, _instant_us(name, value, times))


def _instant_us(name: str, value: object, times: Times) -> int:
    if isinstance(value, Instant):
        return value.micros
    if isinstance(value, LocalTime):
        return _zoned_us(name, _wall(name, value.micros), times)
    if isinstance(value, datetime):
        return _of_datetime(name, value, times)
    if times.format in EPOCHS:
        return _epoch_us(name, value, times.format)
    return _text_us(name, value, times)


def _epoch_us(name: str, value: object, unit: str) -> int:
    is_number = type(value) in (int, float, Decimal)
    if not is_number and not (isinstance(value, str) and NUMBER.fullmatch(value)):
        raise _unreadable(name, value, f"{unit}, such as {1_790_000_000_000_000 // EPOCHS[unit]}")
    try:
        # A float's shortest text is what was meant by it: 0.1 seconds are 100,000 microseconds.
        exact = Decimal(str(value)) * EPOCHS[unit]
        if exact and abs(exact.adjusted()) > MAX_DIGITS:  # of which an int would fill the memory
            raise _unreadable(name, value, unit)
        return math.floor(exact)
    except (ArithmeticError, ValueError):  # (the latter: it is no number)
        raise _unreadable(name, value, unit) from None


def _text_us(name: str, value: object, times: Times) -> int:
    if not isinstance(value, str):
        raise _unreadable(name, value, _expected(times))
    try:
        found = _parser(times.format)(value)
    except ValueError as error:
        why = no_such_day(value) or error
        raise RefusedError("unreadable_time", f"{name} is {shown(value)}: {why}") from None
    if found is None or (found.tzinfo is None and times.zone is None):
        raise _unreadable(name, value, _expected(times))
    try:
        # Digits past the microsecond are cut off, which is also what Parquet times get.
        return _of_datetime(name, found, times)
    except OverflowError:
        raise _unreadable(name, value, "the years 1 to 9999") from None


def _of_datetime(name: str, value: datetime, times: Times) -> int:
    if value.tzinfo is None:
        return _zoned_us(name, value, times)
    return (value - EPOCH) // MICROSECOND


@cache
def _parser(format: str) -> Callable[[str], datetime | None]:
    if format == "iso":
        return lambda text: (
            datetime.fromisoformat(text)
            if INSTANT.fullmatch(text) or LOCAL.fullmatch(text)
            else None
        )
    return lambda text: datetime.strptime(text, format)  # noqa: DTZ007 (the zone is declared)


def _expected(times: Times) -> str:
    if times.format != "iso":
        return f"the format {times.format!r}, with a zone in it or in the declared times"
    return "ISO-8601 with a zone, as 2026-01-31T12:00:00Z"


def local_us(name: str, value: object) -> int:
    """A time without a zone, as microseconds since 1970 on the same wall."""
    return _in_range(name, _local_us(name, value))


def _in_range(name: str, micros: int) -> int:
    if not MIN_US <= micros <= MAX_US:
        raise RefusedError("unreadable_time", f"{name} is outside the years 1 to 9999")
    return micros


def _local_us(name: str, value: object) -> int:
    if isinstance(value, LocalTime):
        return value.micros
    if isinstance(value, datetime) and value.tzinfo is None:
        return (value.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
    if not isinstance(value, str) or not LOCAL.fullmatch(value):
        raise _unreadable(name, value, "ISO-8601 without a zone, as 2026-01-31T12:00:00")
    try:
        return (datetime.fromisoformat(value).replace(tzinfo=UTC) - EPOCH) // MICROSECOND
    except ValueError as error:
        why = no_such_day(value) or error
        raise RefusedError("unreadable_time", f"{name} is {shown(value)}: {why}") from None


def _wall(name: str, micros: int) -> datetime:
    try:
        return (EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None)
    except OverflowError:
        raise RefusedError("unreadable_time", f"{name} is outside the years 1 to 9999") from None


def _zoned_us(name: str, wall: datetime, times: Times) -> int:
    """The instant of a time on the wall of the declared zone, if there is one and only one."""
    if times.zone is None:
        raise _unreadable(name, wall.isoformat(), _expected(times))
    zone = ZoneInfo(times.zone)
    first, second = (wall.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() != second.utcoffset():
        is_gap = first.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != wall
        how_often = "never" if is_gap else "twice"
        raise RefusedError(
            "unreadable_time", f"{name} is {wall.isoformat()}, which {times.zone} had {how_often}"
        )
    return (first - EPOCH) // MICROSECOND


def _unreadable(name: str, value: object, expected: str) -> RefusedError:
    return RefusedError("unreadable_time", f"{name} is {shown(value)}, expected {expected}")
