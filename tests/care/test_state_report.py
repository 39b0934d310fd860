"""What `./stateful inspect` prints, of reports made by hand."""

import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

from include.care.state_report import (
    StateReport,
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
    timeouts={
        "kind": "EventTimeTimeout",
        **dict.fromkeys(("keys_with", "keys_without", "due"), 0),
        **dict.fromkeys(("ttl", "next_at", "last_at")),
    },
    biggest_keys=(),
    partitions=(),
    partition_skew={"keys": None, "bytes": None},
    buckets=(),
    bucket_skew={"keys": None, "bytes": None},
)


def test_a_state_without_keys_can_be_shown():
    text = format_report(NOTHING)
    assert re.search(r"^  keys +0$", text, re.MULTILINE)
    assert "biggest" not in text
    assert json.loads(report_json(NOTHING))["age_us"] is None


def test_a_key_cannot_break_the_table():
    at = datetime(2026, 3, 1, tzinfo=UTC)
    key = {
        "key": "a\nb\x1b[31m" + "x" * 500,
        "bucket": 3,
        "bytes": 600,
        "changed_at": at,
        "timeout_at": None,
        "state": None,
    }
    text = format_report(replace(NOTHING, keys=1, biggest_keys=(key,)))
    assert "a?b?[31mxxx" in text
    assert not re.search(r"[^\x20-\x7e\n]", text)
    assert max(map(len, text.splitlines())) < 140


def test_a_key_of_several_fields_is_shown_as_json_and_told_to_scripts():
    key = {
        "key": {"shop": "Köln", "price": Decimal("1.50"), "on": date(2026, 3, 1)},
        **dict.fromkeys(("changed_at", "timeout_at", "state")),
        "bucket": 3,
        "bytes": 600,
    }
    report = replace(NOTHING, keys=1, biggest_keys=(key,))
    assert '{"shop":"K' in format_report(report)
    told = json.loads(report_json(report))["biggest_keys"][0]["key"]
    assert told == {"shop": "Köln", "price": "1.50", "on": "2026-03-01"}
