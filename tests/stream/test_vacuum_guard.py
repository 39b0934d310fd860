"""VACUUM is refused, to the microsecond, where a reader may still need what it would delete."""

from datetime import UTC, datetime, timedelta

import pytest

from include.stream.bronze_readers import (
    FILE_RETENTION,
    LOG_RETENTION,
    MARGIN,
    Lag,
    lag_findings,
    retention,
    why_not_vacuum,
)
from tests.refused import refused

NOW = datetime(2026, 3, 31, 3, 20, tzinfo=UTC)
KEPT = timedelta(days=7)
MICROSECOND = timedelta(microseconds=1)


def lag(since: datetime | None, stream: str = "user_counts") -> Lag:
    return Lag(stream, 5, since)


def test_a_reader_is_in_time_until_a_margin_before_its_files_may_go():
    last = NOW - KEPT + MARGIN
    assert why_not_vacuum([lag(last)], KEPT, NOW) is None
    assert why_not_vacuum([lag(last - MICROSECOND)], KEPT, NOW) is not None


def test_a_reader_behind_by_more_than_half_of_what_the_log_keeps_is_a_finding():
    kept = timedelta(days=30)
    half = NOW - timedelta(days=15)
    assert lag_findings("bronze/user_events", [lag(half)], kept, NOW) == []
    (found,) = lag_findings("bronze/user_events", [lag(half - MICROSECOND)], kept, NOW)
    assert (found.finding, found.severity) == ("reader_behind", "warning")
    assert (found.limit, found.unit) == (15, "days")
    assert found.figure == pytest.approx(15)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 7 days", timedelta(days=7)),
        ("INTERVAL 1 WEEK", timedelta(days=7)),
        ("interval 36 hours 30 minutes", timedelta(hours=36.5)),
        ("2 days", timedelta(days=2)),
        ("interval 0 hours", timedelta(0)),
    ],
)
def test_a_tables_retention_is_read_as_delta_reads_it(text, expected):
    assert retention({FILE_RETENTION[0]: text}, FILE_RETENTION) == expected


def test_a_table_that_says_nothing_has_deltas_own_retention():
    assert retention({}, FILE_RETENTION) == timedelta(days=7)
    assert retention({}, LOG_RETENTION) == timedelta(days=30)


@pytest.mark.parametrize("text", ["", "interval", "forever", "interval 1 month", "7"])
def test_a_retention_that_cannot_be_read_is_an_error_not_a_guess(text):
    with refused("foreign_properties", subject=LOG_RETENTION[0]):
        retention({LOG_RETENTION[0]: text}, LOG_RETENTION)
