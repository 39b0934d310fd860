"""Spans of time as Spark lets one write them: milliseconds, or words such as `5 minutes`."""

import re
from datetime import timedelta
from functools import lru_cache

from include.fold.admission import MICROSECOND, US_PER_MS

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
    """Microseconds of a span given in milliseconds, in words, or as a timedelta.

    Words are Spark's: `5 minutes`, `1 hour 30 minutes`. ValueError for other words,
    TypeError for other types (a float of milliseconds would not be exact).
    """
    if type(duration) is int:
        return duration * US_PER_MS
    if isinstance(duration, str):
        return _of_words(duration)
    if isinstance(duration, timedelta):
        return duration // MICROSECOND
    raise TypeError(
        f"duration {duration!r} is a {type(duration).__name__}: give whole milliseconds, "
        "a text such as '5 minutes', or a timedelta"
    )


@lru_cache
def _of_words(text: str) -> int:
    words = text.strip().lower().removeprefix("interval ").strip()
    terms = list(TERM.finditer(words))
    covered = sum(len(term.group()) for term in terms)
    if not terms or covered != len(words) or any(term[2] not in UNITS_US for term in terms):
        raise ValueError(
            f"duration {text!r} is not one: write whole numbers with units, such as "
            f"'5 minutes' or '1 hour 30 minutes' ({', '.join(UNITS_US)})"
        )
    return sum(int(term[1]) * UNITS_US[term[2]] for term in terms)
