"""The time that a stream's page shows: its newest days, or a span between two instants.

All is in UTC, so that an hour is an hour, also where a country's clocks are set back over it.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Literal, NamedTuple
from urllib.parse import urlencode

from include.page.overview import WINDOW_DAYS
from include.plans.plan_recompute import parse_instant
from include.settings import SettingsError

MOST_DAYS = 3_650
SECOND = timedelta(seconds=1)
# A form has whole seconds: sent as it is, of the longest time, it asks for a little more.
LONGEST = timedelta(days=MOST_DAYS) + 2 * SECOND
FIRST = datetime(1970, 1, 1, tzinfo=UTC)
ZONE = "UTC"  # of a form, whose fields have none


class ShownTime(NamedTuple):
    """`length` before `until`, which is no part of it; None: all up to now."""

    length: timedelta
    until: datetime | None = None

    def begin(self, now: datetime) -> datetime:
        return self.end(now) - self.length

    def end(self, now: datetime) -> datetime:
        return self.until or now


def asked_time(
    now: datetime, start: str = "", until: str = "", days: int | None = None, zone: str = ""
) -> ShownTime:
    """What a person has asked for; SettingsError, in their words, for what cannot be shown.

    Without `start` it is `days` long. An end that is still to come is now. `zone` is that of
    instants which name none: UTC, or "" to refuse these.
    """
    if zone not in ("", ZONE):
        raise SettingsError(f"zone is {zone!r}: only {ZONE} is known, or an instant's own")
    if start and days is not None:
        raise SettingsError("give from or days, not both: until, if given, is the end of either")
    end = min(_instant("until", until, zone), now) if until else None
    if not start:
        length = timedelta(days=WINDOW_DAYS if days is None else days)
        return _shown(ShownTime(length, end), now)
    begin, end = _instant("from", start, zone), end or now
    if begin >= now:
        raise SettingsError(f"from is {start!r}: that is still to come, it is {now:%F %T} UTC")
    if end <= begin:
        raise SettingsError(f"until is {until!r}: that is not after from, which is {start!r}")
    return _shown(ShownTime(end - begin, end), now)


def _shown(time: ShownTime, now: datetime) -> ShownTime:
    if time.length < SECOND:
        raise SettingsError("from and until are less than a second apart: give at least that")
    if time.length > LONGEST:
        raise SettingsError(f"from and until are more than {MOST_DAYS:,} days apart: give fewer")
    if time.end(now) - FIRST < time.length:
        raise SettingsError("that time begins before 1970, when there were no runs: begin later")
    return time


def _instant(name: str, text: str, zone: str) -> datetime:
    """A date, or an instant with its zone. One without may be anybody's hour."""
    instant = parse_instant(name, text)
    if zone or _is_date(text) or datetime.fromisoformat(text).tzinfo is not None:
        return instant
    raise SettingsError(
        f"{name} is {text!r}, of no zone: add Z for UTC, or an offset such as +01:00 "
        "(in an address: %2B01:00)"
    )


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


Move = Literal["earlier", "later", "wider"]


def moves(time: ShownTime, now: datetime) -> Iterator[tuple[Move, str]]:
    """Where one may go from here, as the query of an address: as much before or after, or twice as much."""
    begin, end = time.begin(now), time.end(now)
    wanted: dict[Move, tuple[datetime, datetime]] = {
        "earlier": (begin - time.length, begin),
        "later": (end, min(end + time.length, now)),
        "wider": (begin - time.length / 2, min(end + time.length / 2, now)),
    }
    for move, (since, until) in wanted.items():
        if since >= FIRST and SECOND <= until - since <= LONGEST:
            yield move, query(since, until)


def query(begin: datetime, end: datetime) -> str:
    """That of the address of a time."""
    return urlencode({"from": text_of(begin), "until": text_of(end)})


def text_of(at: datetime) -> str:
    """ISO 8601, exact, in UTC."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
