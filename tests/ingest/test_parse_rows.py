"""What makes a landed row an event, and what refuses it. No Spark."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import EPOCH, MICROSECOND
from include.ingest.landed_values import (
    MAX_US,
    MIN_US,
    Event,
    Instant,
    RefusedError,
    reader_of_events,
)
from include.settings import Field, Source

SOURCE = Source(
    name="readings",
    time_field="at",
    comment="Readings",
    max_future=timedelta(hours=1),
    fields=(
        Field(name="key", type="string", comment="Key"),
        Field(name="count", type="bigint", comment="Count"),
        Field(name="amount", type="double", comment="Amount", required=False),
    ),
)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def us(instant: datetime) -> int:
    return (instant - EPOCH) // MICROSECOND


def event_of(**changes: object) -> Event:
    row = {"key": "a", "count": 1, "amount": 2.5, "at": "2025-12-31T23:00:00Z", **changes}
    return reader_of_events(SOURCE)(row, us(NOW))


def refusal_of(**changes: object) -> tuple[str, str]:
    with pytest.raises(RefusedError) as caught:
        event_of(**changes)
    return caught.value.code, caught.value.reason


@pytest.mark.parametrize("field", ["key", "count", "at"])
def test_a_required_field_must_be_there(field: str):
    assert refusal_of(**{field: None}) == ("missing_field", field)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01 00:00Z", 0),
        ("1970-01-01T00:00:00.123456789Z", 123456),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("1970-01-01T00:00:00,5Z", 500000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:30:00+0130", 0),
        ("1969-12-31T19:00:00-05", 0),
        ("0001-01-01T00:00:00Z", MIN_US),
    ],
)
def test_times_are_read_to_the_microsecond(text: str, micros: int):
    assert event_of(at=text).event_time_us == micros


@pytest.mark.parametrize(
    "value",
    [
        "2025-12-31T23:00:00",
        "2025-12-31",
        "2025-12-31T23:00:00 Z",
        "2025-12-31T23:00:60Z",
        "2025-02-29T00:00:00Z",
        "2025-W01-1T00:00:00Z",
        "20251231T230000Z",
        "2025-12-31T23:00:00+24:00",
        "2025-12-31T23:00:00+00:00:30",
        "\uff12025-12-31T23:00:00Z",
        "2025-12-31T23:00:00Z\n",
        "0001-01-01T00:00:00+01:00",
        "yesterday",
        "",
        1767222000,
        True,
    ],
)
def test_other_times_are_refused(value: object):
    assert refusal_of(at=value)[0] == "unreadable_time"


@given(
    st.datetimes(max_value=NOW.replace(tzinfo=None)),
    st.integers(min_value=-14 * 60, max_value=14 * 60),
)
def test_any_time_keeps_its_instant_in_any_zone(local: datetime, offset_minutes: int):
    instant = local.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    micros = us(instant)
    if MIN_US <= micros <= us(NOW + HOUR):
        assert event_of(at=instant.isoformat()).event_time_us == micros
    else:
        assert refusal_of(at=instant.isoformat())[0] in ("unreadable_time", "future_time")


def test_a_time_at_the_limit_of_the_future_is_in_and_past_it_is_out():
    limit = NOW + HOUR
    assert event_of(at=limit.isoformat()).event_time_us == us(limit)
    assert refusal_of(at=(limit + MICROSECOND).isoformat())[0] == "future_time"
    assert refusal_of(at="9999-12-31T23:59:59.999999Z")[0] == "future_time"


def test_an_instant_beyond_the_year_9999_or_before_1_is_unreadable():
    assert refusal_of(at=Instant(MAX_US + 1))[0] == "unreadable_time"
    assert refusal_of(at=Instant(MIN_US - 1))[0] == "unreadable_time"
    assert event_of(at=Instant(MIN_US)).event_time_us == MIN_US


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def event_or_refusal(row: dict[str, object]) -> Event | RefusedError:
    try:
        return reader_of_events(SOURCE)(row, us(NOW))
    except RefusedError as refusal:
        return refusal


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(["key", "count", "amount", "at"], JSON_VALUES))
)
def test_any_row_is_an_event_of_the_right_types_or_refused_with_a_reason(row: dict[str, object]):
    event = event_or_refusal(row)
    if isinstance(event, RefusedError):
        assert event.code
        assert event.reason.isascii()
        assert "\n" not in event.reason
        return
    key, count, amount = event.values
    assert (type(key), type(count), type(amount)) in [(str, int, float), (str, int, type(None))]
    json.dumps(event.values, allow_nan=False).encode()
