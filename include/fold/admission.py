"""The inequalities of the fold's clock, each in one place.

| what | rule |
|---|---|
| a row is late | `time <= arrival watermark - delay` |
| an event is settled | `time <= watermark`, that is `time < until` with `until = watermark + 1 us` |
| a timeout at x fires | when `x < until`, before any event with `time > x`, after those with `time == x` |
| a timer of Spark's for x | at the first whole millisecond `>= x` |
| a row is before an initial state | `time < as_of` |

All instants are integer microseconds, so that none is rounded: a prototype that worked in
milliseconds gave one wrong alert in 1.8 million. The comparisons also work on arrays.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
US_PER_MS = 1000
# Stands for "no timeout" where instants are compared and stored: later than any of them.
NEVER_US = 2**63 - 1
LAST_INSTANT_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND


def is_late(event_time_us: Any, arrival_watermark_us: Any, delay_us: int) -> Any:
    """Whether a row came too late to be folded live: decided by its bronze columns alone."""
    return event_time_us <= arrival_watermark_us - delay_us


def watermark_us(commit_watermark_us: int, delay_us: int) -> int:
    """The fold's watermark after a complete commit: no admitted row can come at or before it."""
    return commit_watermark_us - delay_us


def until_us(watermark: int) -> int:
    """The exclusive bound of what that watermark settles: an event exactly at it is settled."""
    return watermark + 1


def timer_ms(instant_us: int) -> int:
    """The first of Spark's millisecond timers that is not before `instant_us`."""
    return -(-instant_us // US_PER_MS)
