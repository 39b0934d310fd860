"""Instants as microseconds since 1970, UTC: as Delta, Spark and the fold count them."""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
US_PER_MS = 1000


def micros_of(instant: datetime) -> int:
    """Microseconds since 1970 of an instant with a time zone."""
    return (instant - EPOCH) // MICROSECOND


def instant_of(micros: int) -> datetime:
    """The instant so many microseconds after 1970, in UTC."""
    return EPOCH + micros * MICROSECOND
