"""Instants as microseconds since 1970, UTC: as Delta, Spark and the fold count them."""

import re
from calendar import month_name, monthrange
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
US_PER_MS = 1000
DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)


def micros_of(instant: datetime) -> int:
    """Microseconds since 1970 of an instant with a time zone."""
    return (instant - EPOCH) // MICROSECOND


def instant_of(micros: int) -> datetime:
    """The instant so many microseconds after 1970, in UTC."""
    return EPOCH + micros * MICROSECOND


def no_such_day(text: str) -> str | None:
    """Why a text that is written as a date, or begins with one, names none; None when it may."""
    if not (found := DATE.match(text)):
        return None
    year, month, day = map(int, found.groups())
    if not 1 <= month <= 12:
        return f"there is no month {month}"
    days = monthrange(year, month)[1] if year else 31
    return None if 1 <= day <= days else f"{month_name[month]} {year} has {days} days"
