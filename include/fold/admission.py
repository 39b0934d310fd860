"""The fold's clock: its inequalities, instants and durations.

| what | rule |
|---|---|
| a row is late | `time <= watermark_before - delay` |
| an event is complete | `time <= watermark`, that is `time < until` with `until = watermark + 1 us` |
| a timeout at x fires | when `x < until`, before any event with `time > x`, after those with `time == x` |
| a timer of Spark's for x | at the first whole millisecond `>= x` |
| a row is before an initial state | `time < as_of` |

All instants are integer microseconds, so that none is rounded: a prototype that worked in
milliseconds gave one wrong alert in 1.8 million. The comparisons also work on arrays.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from include.lake.errors import wrong_argument

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
US_PER_MS = 1000
# "No timeout" where instants are compared and stored: later than any of them.
NEVER_US = 2**63 - 1
LAST_INSTANT_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND


def is_late(event_time_us: Any, watermark_before_us: Any, delay_us: int) -> Any:
    """True if a row came too late to be folded live: decided by its bronze columns alone."""
    return event_time_us <= watermark_before_us - delay_us


def watermark_us(watermark_after_us: int, delay_us: int) -> int:
    """Return the fold's watermark after a whole bronze commit: no admitted row can come at or before it."""
    return watermark_after_us - delay_us


def until_us(watermark: int) -> int:
    """Return the exclusive bound of what is complete by that watermark: an event exactly at it is."""
    return watermark + 1


def timer_ms(instant_us: int) -> int:
    """Return the first of Spark's millisecond timers that is not before `instant_us`."""
    return -(-instant_us // US_PER_MS)


def micros_of(instant: datetime) -> int:
    """Return the microseconds since 1970 of an instant with a time zone."""
    return (instant - EPOCH) // MICROSECOND


def instant_of(micros: int) -> datetime:
    """Return the instant, in UTC, so many microseconds after 1970."""
    return EPOCH + micros * MICROSECOND


def parse_instant(name: str, text: str) -> datetime:
    """Return the instant of a date or time in ISO 8601, UTC if it has no zone; SettingsError otherwise."""
    try:
        instant = datetime.fromisoformat(text)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        said = f"{name} is {text!r}: give a date such as 2026-01-05, or 2026-01-05T13:00:00Z"
        raise wrong_argument(name, said) from error


DAY_US = 86_400_000_000
# Spark counts 31 days for a month where it needs a span: a timeout must not come too early.
UNITS_US = {
    "microsecond": 1,
    "millisecond": US_PER_MS,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": DAY_US,
    "week": 7 * DAY_US,
    "month": 31 * DAY_US,
    "year": 12 * 31 * DAY_US,
}
TERM = re.compile(r"([+-]?\d+)\s*([a-z]+?)s?(?:\s+|$)")


def duration_us(duration: int | str | timedelta) -> int:
    """Return the microseconds of a span: whole milliseconds, Spark's words, or a timedelta.

    ValueError for other words, TypeError for other types: a float would not be exact.

    >>> duration_us("1 minute 5 seconds"), duration_us(250)
    (65000000, 250000)
    """
    if type(duration) is int:
        return duration * US_PER_MS
    if isinstance(duration, str):
        return _of_words(duration)
    if isinstance(duration, timedelta):
        return duration // MICROSECOND
    said = f"duration {duration!r}: give whole milliseconds, words such as '5 minutes', a timedelta"
    raise TypeError(f"[NOT_EXPECTED_TYPE] {said}")


@lru_cache
def _of_words(text: str) -> int:
    words = text.strip().lower().removeprefix("interval ").strip()
    terms = list(TERM.finditer(words))
    covered = sum(len(term.group()) for term in terms)
    if not terms or covered != len(words) or any(term[2] not in UNITS_US for term in terms):
        said = f"duration {text!r}: write whole numbers with units ({', '.join(UNITS_US)})"
        raise ValueError(f"[INVALID_INTERVAL_FORMAT] {said}")
    return sum(int(term[1]) * UNITS_US[term[2]] for term in terms)
