"""What may be asked for as a page's time, what is refused and how, and where one may go from there."""

from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import parse_qs

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from include.page.shown_time import (
    FIRST,
    LONGEST,
    MOST_DAYS,
    SECOND,
    ShownTime,
    asked_time,
    moves,
    query,
)
from include.settings import SettingsError

NOW = datetime(2026, 11, 24, 12, 30, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
YEARS = 57 * 365 * DAY
instants = st.timedeltas(timedelta(0), YEARS).map(FIRST.__add__)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("asked", "begin", "end"),
    [
        ({}, NOW - 30 * DAY, None),
        ({"days": 7}, NOW - 7 * DAY, None),
        ({"start": "2026-11-23T10:00Z"}, at("2026-11-23T10:00Z"), NOW),
        (
            {"start": "2026-11-23", "until": "2026-11-24"},
            at("2026-11-23T00Z"),
            at("2026-11-24T00Z"),
        ),
        ({"until": "2026-11-23T00:00Z", "days": 2}, at("2026-11-21T00Z"), at("2026-11-23T00Z")),
        ({"until": "2026-11-23"}, at("2026-10-24T00Z"), at("2026-11-23T00Z")),
        ({"start": "2026-11-23", "until": "2099-01-01"}, at("2026-11-23T00Z"), NOW),
        ({"until": "2099-01-01", "days": 1}, NOW - DAY, NOW),
        (
            {"start": "2026-11-23T10:00", "until": "2026-11-23T11:00", "zone": "UTC"},
            at("2026-11-23T10Z"),
            at("2026-11-23T11Z"),
        ),
        (
            {"start": "2026-11-23T10:00:00.5+01:00", "until": "20261123T1000Z"},
            at("2026-11-23T09:00:00.5Z"),
            at("2026-11-23T10Z"),
        ),
    ],
)
def test_a_time_is_as_it_is_asked_for(asked, begin, end):
    time = asked_time(NOW, **asked)
    assert (time.begin(NOW), time.until) == (begin, end)


def test_two_days_over_a_change_of_the_clocks_are_as_long_as_they_were():
    # In Berlin the 25th of October 2026 has 25 hours, and half past two twice.
    both = asked_time(NOW, "2026-10-25T00:00+02:00", "2026-10-27T00:00+01:00")
    assert both.length == 49 * HOUR
    again = asked_time(NOW, "2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00")
    assert again.length == HOUR


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"start": "2026-11-23", "until": "2026-11-22"},
            "until is '2026-11-22': that is not after",
        ),
        ({"start": "2026-11-23", "until": "2026-11-23"}, "that is not after from"),
        ({"start": "2026-11-24T12:30Z"}, "from is '2026-11-24T12:30Z': that is still to come"),
        (
            {"start": "2030-01-01", "until": "2031-01-01"},
            "still to come, it is 2026-11-24 12:30:00",
        ),
        ({"start": "yesterday"}, "from is 'yesterday': give a date such as"),
        ({"until": "<b>now</b>"}, "until is '<b>now</b>': give a date such as"),
        ({"start": "2026-02-30", "until": "2026-03-01"}, "from is '2026-02-30': "),
        ({"start": "2026-11-23T10:00"}, "from is '2026-11-23T10:00', of no zone: add Z for UTC"),
        ({"until": "2026-11-23 10:00"}, "until is '2026-11-23 10:00', of no zone"),
        ({"start": "2026-11-23T10:00 01:00"}, "from is '2026-11-23T10:00 01:00': give a date"),
        ({"start": "0001-01-01T00:00+14:00"}, "in UTC it is not in the years 1 to 9999"),
        ({"start": "1969-12-31", "until": "1970-01-02"}, "begins before 1970"),
        ({"until": "0001-01-01"}, "begins before 1970"),
        ({"until": "1970-01-02"}, "begins before 1970"),
        ({"start": "2000-01-01"}, "more than 3,650 days apart"),
        ({"days": 3_651}, "more than 3,650 days apart"),
        (
            {"start": "2026-11-23T10Z", "until": "2026-11-23T10:00:00.9Z"},
            "less than a second apart",
        ),
        ({"start": "2026-11-24T12:29:59.5Z"}, "less than a second apart"),
        ({"start": "2026-11-23", "days": 2}, "give from or days, not both"),
        ({"start": "2026-11-23T10:00", "zone": "CET"}, "zone is 'CET': only UTC"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_words(asked, said):
    with pytest.raises(SettingsError) as error:
        asked_time(NOW, **asked)
    assert said in str(error.value)


@given(begin=instants, length=st.timedeltas(SECOND, MOST_DAYS * DAY), hours=st.integers(-14, 14))
def test_the_address_of_a_time_asks_for_just_that_in_any_zone(begin, length, hours):
    end = begin + length
    now, zone = end + HOUR, timezone(timedelta(hours=hours))
    asked = parse_qs(query(begin, end))
    time = asked_time(now, asked["from"][0], asked["until"][0])
    assert (time.begin(now), time.end(now)) == (begin, end)
    own = asked_time(now, begin.astimezone(zone).isoformat(), end.astimezone(zone).isoformat())
    assert own == time


@given(length=st.timedeltas(SECOND, MOST_DAYS * DAY), end=instants)
@example(MOST_DAYS * DAY, NOW.replace(microsecond=1))
def test_whole_seconds_about_any_time_are_a_time_too(length, end):
    begin = end - length
    assume(begin >= FIRST)
    edges = begin.replace(microsecond=0), end + timedelta(microseconds=-end.microsecond % 10**6)
    asked = asked_time(end + HOUR, *(f"{at:%Y-%m-%dT%H:%M:%S}" for at in edges), zone="UTC")
    assert (asked.begin(end), asked.until) == edges


@given(end=instants, length=st.timedeltas(SECOND, MOST_DAYS * DAY), is_open=st.booleans())
def test_from_each_time_one_goes_only_to_what_can_be_shown(end, length, is_open):
    assume(end - length >= FIRST)
    now = end if is_open else end + HOUR
    time = ShownTime(length, None if is_open else end)
    begin, found = end - length, {}
    for move, address in moves(time, now):
        asked = parse_qs(address)
        there = asked_time(now, asked["from"][0], asked["until"][0])
        found[move] = (there.begin(now), there.end(now))
    if "earlier" in found:
        assert found["earlier"] == (begin - length, begin)
    assert ("later" in found) == (not is_open)
    if not is_open:
        assert found["later"] == (end, min(end + length, now))
    if "wider" in found:
        assert found["wider"][0] < begin
        assert found["wider"][1] >= end
    assert ("wider" in found) or 2 * length > LONGEST or begin - length / 2 < FIRST
