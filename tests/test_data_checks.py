"""What a check may be, said where a stream declares it."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from include.data_checks import Check
from include.plans.stream_identity import code_fingerprint
from include.registry import source_named, stream_named
from include.settings import PROJECT, Stream
from include.stream_definition import check_stream
from tests.refused import refused

COLUMNS = ("user_id", "count", "span_start", "emitted_at", "emitted_date", "place")


@pytest.mark.parametrize(
    "condition",
    [
        "count > 5",
        "COUNT > 5 AND User_Id IS NOT NULL",
        "user_id RLIKE '^[a-z]+ amout$' OR user_id LIKE \"amout\"",
        "emitted_at >= TIMESTAMP '2026-01-01 00:00:00' AND emitted_date < DATE'2026-01-02'",
        "span_start < emitted_at + INTERVAL 5 MINUTES",
        "CAST(count AS decimal(12,2)) < 1e6 AND CAST(count AS bigint) >= 0",
        "CASE WHEN count > 3 THEN `user_id` ELSE 'x' END <> 'x'",
        "exists(array(count), x -> x > 0) AND aggregate(array(1), 0, (a, e) -> a + e) = 1",
        "place.city.name IS NOT NULL",
        "count_if(user_id IS NULL) * 100 <= count(*) AND max(count) < 10",
        "extract(YEAR FROM emitted_at) > 2000",
        "count(*) FILTER (WHERE count < 0) = 0",
        "count > 5 -- as the limit says",
        "count > /* above the limit */ 5",
        "user_id <> '-- no comment' AND count::bigint > 5",
    ],
)
def test_a_condition_by_the_tables_columns_passes(condition):
    Check(name="right", each_row=condition).refuse_unknown(COLUMNS)


@pytest.mark.parametrize(
    ("condition", "name"),
    [
        ("cuont > 5", "cuont"),
        ("`cuont` > 5", "cuont"),
        ("sum(cuont) > 5", "cuont"),
        ("count > 5 AND exists(array(count), x -> y > 0)", "y"),
        ("user_id = amout", "amout"),
        ("count > 5 -- above\nAND amout > 5", "amout"),
    ],
)
def test_a_misspelt_column_is_named(condition, name):
    with refused("wrong_setting", subject=name):
        Check(name="wrong", together=condition).refuse_unknown(COLUMNS)


def with_checks(*checks: Check) -> Stream:
    return replace(stream_named("threshold_alerts"), checks=checks)


def test_a_streams_checks_are_checked_with_all_else_of_it():
    source = source_named("user_events")
    check_stream(with_checks(Check(name="above", each_row="count > 5")), source)
    with refused("wrong_setting", subject="cuont"):
        check_stream(with_checks(Check(name="above", each_row="cuont > 5")), source)
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


def test_the_example_of_the_page_is_right():
    page = (PROJECT / "docs" / "checks.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(example, names)
    check_stream(names["STREAM"], source_named("user_events"))
