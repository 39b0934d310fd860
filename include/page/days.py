"""A table's coverage day by day: the bar of the overview, and the timeline of a stream."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal

from include.coverage.findings import WHY
from include.coverage.judge import Coverage, Reason, Span
from include.fold.instants import micros_of

Status = Literal["right", "late", "code", "unproved", "unsettled", "none"]
STATUS_OF: dict[Reason | None, Status] = {
    None: "right",
    "late rows": "late",
    "other code": "code",
    "other bronze": "unproved",
    "not recorded": "unproved",
    "cut off": "unproved",
}
# The worst first: a day is what the worst of its spans is.
WORST: tuple[Status, ...] = ("unproved", "code", "late", "unsettled", "right", "none")
NOT_RIGHT: tuple[Status, ...] = ("unproved", "code", "late")
WORDS: dict[Status, str] = {
    "right": "right",
    "late": "late rows missing",
    "code": "other code",
    "unproved": "not proved",
    "unsettled": "not yet settled",
    "none": "nothing yet",
}
DAY_US = 86_400 * 10**6
EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Day:
    """A day (UTC) of a table, and why it is not right."""

    date: date
    status: Status
    why: str


def days_of(coverage: Coverage, now: datetime, count: int) -> tuple[Day, ...]:
    """The newest `count` days up to that of `now`, in order."""
    newest = micros_of(now) // DAY_US
    return tuple(_day(coverage, number) for number in range(newest - count + 1, newest + 1))


def days_text(days: Sequence[Day]) -> str:
    """The bar in words: "27 days right, 3 days late rows missing"."""
    counts = Counter(day.status for day in days)
    parts = [f"{counts[s]} {_days(counts[s])} {WORDS[s]}" for s in reversed(WORST) if counts[s]]
    return ", ".join(parts)


def _days(count: int) -> str:
    return "day" if count == 1 else "days"


def _day(coverage: Coverage, number: int) -> Day:
    """Of the day of that number since 1970."""
    from_us, until_us = number * DAY_US, (number + 1) * DAY_US
    spans = [s for s in coverage.spans if s.from_us < until_us and from_us < s.until_us]
    statuses = {STATUS_OF[span.reason] for span in spans}
    if coverage.until_us is None:
        statuses.add("none")
    elif coverage.until_us < until_us:
        statuses.add("unsettled")
    status = next(status for status in WORST if status in statuses)
    return Day(EPOCH + timedelta(days=number), status, _why(status, spans))


def _why(status: Status, spans: Sequence[Span]) -> str:
    span = next((s for s in spans if s.reason and STATUS_OF[s.reason] == status), None)
    if span is None or span.reason is None:
        return WORDS[status]
    missing = sum(group.rows for group in span.missing)
    rows = f" ({missing:,} rows)" if missing else ""
    return f"{WORDS[status]}: {WHY[span.reason]}{rows}"
