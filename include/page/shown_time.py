"""The time that a stream's page shows: whole days up to now, or up to a date, in UTC."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from urllib.parse import urlencode

from include.page.overview import WINDOW_DAYS
from include.settings import SettingsError

MOST_DAYS = 3_650
FIRST_YEAR = 2000  # nothing ran before, and MOST_DAYS earlier is still a date
DAY = timedelta(days=1)


class ShownTime(NamedTuple):
    """`length` before `until`, which is no part of it; None: all up to now."""

    length: timedelta
    until: datetime | None = None

    def begin(self, now: datetime) -> datetime:
        return self.end(now) - self.length

    def end(self, now: datetime) -> datetime:
        return self.until or now


def asked_time(now: datetime, days: int | None = None, until: str = "") -> ShownTime:
    """What a person has asked for; SettingsError for what is no date. One that is to come is now."""
    length = timedelta(days=WINDOW_DAYS if days is None else days)
    end = _midnight(until) if until else now
    return ShownTime(length, end if end < now else None)


def _midnight(text: str) -> datetime:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if day.year < FIRST_YEAR:
        raise SettingsError(
            f"until is {text!r}: give a date from {FIRST_YEAR} on, such as 2026-11-20",
            code="wrong_argument",
            subject="until",
        )
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def moves(time: ShownTime, now: datetime) -> Iterator[tuple[str, str]]:
    """Where one may go from here, as the query of an address: to as many days before or after."""
    days = time.length // DAY
    begin, end = time.begin(now), time.until
    before = begin.date() if end else begin.date() + DAY
    if before.year >= FIRST_YEAR:
        yield "earlier", urlencode({"days": days, "until": before})
    if end is not None:
        after = {"until": (end + time.length).date()} if end + time.length < now else {}
        yield "later", urlencode({"days": days, **after})
