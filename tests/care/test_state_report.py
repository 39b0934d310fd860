"""What `./stateful inspect` prints, of reports made by hand."""

import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from include.care.state_report import (
    Skew,
    Spread,
    StateReport,
    Timeouts,
    format_report,
    report_json,
)

NOTHING = StateReport(
    stream="user_counts",
    generation=1,
    batch_id=0,
    checkpoint="/lake/checkpoints/user_counts/1",
    clock="event time",
    until=None,
    key="user_id",
    keys=0,
    keys_without_state=0,
    bytes=0,
    pending_events=0,
    pending_bytes=0,
    bytes_per_key=None,
    age_us=None,
    timeouts=Timeouts(
        kind="EventTimeTimeout", keys_with=0, keys_without=0, due=0, next_at=None, last_at=None
    ),
    biggest_keys=(),
    partitions=(),
    partition_skew=Skew(keys=None, bytes=None),
    buckets=(),
    bucket_skew=Skew(keys=None, bytes=None),
)


def test_a_state_without_keys_can_be_shown():
    text = format_report(NOTHING)
    assert "keys      0\n" in text
    assert "biggest" not in text
    assert json.loads(report_json(NOTHING))["age_us"] is None


def test_a_key_cannot_break_the_table():
    at = datetime(2026, 3, 1, tzinfo=UTC)
    key = {
        "key": "a\nb\x1b[31m" + "x" * 500,
        "bucket": 3,
        "bytes": 600,
        "changed_at": at,
        "age_us": 1,
        "timeout_at": None,
        "state": None,
    }
    text = format_report(replace(NOTHING, keys=1, biggest_keys=(key,)))
    assert "a?b?[31mxxx" in text
    assert not re.search(r"[^\x20-\x7e\n]", text)
    assert max(map(len, text.splitlines())) < 140
    assert key["key"][-500:] in format_report(replace(NOTHING, keys=1, biggest_keys=(key,)), True)


def test_a_key_of_several_fields_is_shown_as_json_and_told_to_scripts():
    key = {
        "key": {"shop": "Köln", "price": Decimal("1.50"), "on": date(2026, 3, 1)},
        **dict.fromkeys(("changed_at", "age_us", "timeout_at", "state")),
        "bucket": 3,
        "bytes": 600,
    }
    report = replace(NOTHING, keys=1, biggest_keys=(key,))
    assert '{"shop":"Köln","price":1.50,"on":"2026-03-01"}' in format_report(report, is_wide=True)
    told = json.loads(report_json(report))["biggest_keys"][0]["key"]
    assert told == {"shop": "Köln", "price": "1.50", "on": "2026-03-01"}


def same(figure: int) -> Spread:
    return Spread(least=figure, median=figure, p90=figure, p99=figure, most=figure)


AGES = [
    (0, "0 s"),
    (60_000_000, "1 min"),
    (3_599_999_999, "59 min 59 s"),
    (3_600_000_000, "1 h"),
    (90_000_000_000, "1 d 1 h"),
]


@pytest.mark.parametrize(("age_us", "shown"), AGES)
def test_ages_are_in_units_that_people_read(age_us, shown):
    spread = same(age_us)
    text = " ".join(format_report(replace(NOTHING, keys=1, age_us=spread)).split())
    assert " ".join([shown] * 5) in text


def test_quantiles_say_when_they_are_approximate():
    bucket = {"bucket": 0, "partition": 0, "bytes": 1, "pending_events": 0, "pending_bytes": 0}
    few, many = (
        replace(NOTHING, keys=2_000, age_us=same(1), buckets=[bucket | {"keys": keys}] * 2)
        for keys in (1_000, 1_001)
    )
    assert ["approximate" in format_report(report) for report in (few, many)] == [False, True]
