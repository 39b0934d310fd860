"""Checks of a stream are checked where they are declared."""

from dataclasses import replace
from datetime import timedelta

import pytest

from include.registry import source_named, stream_named
from include.settings import Check, Stream
from include.stream.stream_identity import code_fingerprint
from include.stream_definition import check_stream
from tests.refused import refused


def with_checks(*checks: Check) -> Stream:
    return replace(stream_named("threshold_alerts"), checks=checks)


def test_a_streams_checks_are_checked_with_all_else_of_it():
    source = source_named("user_events")
    check_stream(with_checks(Check(name="above", each_row="count > 5")), source)
    with refused("wrong_setting", subject="above"):
        with_checks(*[Check(name="above", each_row="count > 5")] * 2)
    with refused("wrong_setting", subject="Above"):
        with_checks(Check(name="Above", each_row="count > 5"))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"each_row": " "},
        {"each_row": "a > 1", "together": "count(*) > 1"},
        {"each_row": "a > 1", "severity": "fatal"},
    ],
)
def test_a_check_has_one_condition_and_a_severity(given):
    with refused("wrong_setting", subject="wrong"):
        Check(name="wrong", **given)


def test_a_check_changes_no_result_so_the_code_is_the_same():
    before = stream_named("threshold_alerts")
    after = replace(before, checks=(Check(name="above", each_row="count > 5"),))
    assert code_fingerprint(before, None) == code_fingerprint(after, None)
    assert after.watermark_delay == timedelta(minutes=10)
