"""What may be asked for as a page's time, and where one may go from there."""

from datetime import UTC, date, datetime, timedelta
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.page.stream_figures import FIRST_YEAR, MOST_DAYS, asked_time, moves
from tests.refused import refused

NOW = datetime(2026, 11, 24, 12, 30, tzinfo=UTC)
DAY = timedelta(days=1)
MIDNIGHT = NOW.replace(hour=0, minute=0)
lengths = st.integers(1, MOST_DAYS)
dates = st.dates(date(FIRST_YEAR, 1, 1), NOW.date() + 3 * DAY)


@pytest.mark.parametrize(
    ("asked", "begin", "until"),
    [
        ({"until": "2026-11-24"}, MIDNIGHT - 30 * DAY, MIDNIGHT),
        ({"days": 7}, NOW - 7 * DAY, None),
        ({"days": 2, "until": "2026-11-24"}, MIDNIGHT - 2 * DAY, MIDNIGHT),
        ({"until": "2099-01-01", "days": 1}, NOW - DAY, None),
    ],
)
def test_a_time_is_as_it_is_asked_for(asked, begin, until):
    time = asked_time(NOW, **asked)
    assert (time.begin(NOW), time.until) == (begin, until)


@pytest.mark.parametrize("text", ["never", "1999-12-31", "0001-01-01", "2026-11-20T10:00Z"])
def test_what_is_no_day_of_a_lake_is_refused(text):
    with refused("wrong_argument", subject="until"):
        asked_time(NOW, until=text)


@given(days=lengths, until=dates)
def test_one_goes_to_as_many_days_that_join_these_and_never_beyond_now(days, until):
    time = asked_time(NOW, days, f"{until}")
    for move, query in moves(time, NOW):
        asked = {name: value for name, (value,) in parse_qs(query).items()}
        other = asked_time(NOW, int(asked["days"]), asked.get("until", ""))
        first, second = (other, time) if move == "earlier" else (time, other)
        assert other.length == time.length
        assert other.end(NOW) <= NOW
        # They join, but that a time up to now begins within a day, which is shown as a whole.
        shared = first.end(NOW) - second.begin(NOW)
        assert timedelta(0) <= shared < (time.length if second.until is None else DAY)
