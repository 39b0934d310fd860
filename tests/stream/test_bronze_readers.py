"""The old commits and files of bronze that streams still need, which VACUUM and the clean-up of its log must leave."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from include.lake.paths import Lake
from include.registry import stream_named
from include.stream.bronze import (
    FILE_RETENTION,
    LOG_RETENTION,
    MARGIN,
    ReaderLag,
    lag_findings,
    needed_commit,
    read_lags,
    refuse_cut_off,
    retention,
    why_not_vacuum,
)
from include.stream.open_stream import has_waiting_rows, open_stream
from tests.refused import refused
from tests.stream.bronze_lake import (
    SOURCE,
    append,
    backdate,
    bronze,
    log_file,
    rebuild,
    set_properties,
    write_position,
)

Step = Callable[[Lake], object]
MADE = datetime(2026, 3, 5, 12, 30, tzinfo=UTC)


@pytest.fixture
def three_commits(lake):
    for _ in range(3):
        append(lake)
    return lake


def lags(lake) -> list[ReaderLag]:
    return read_lags(lake, lake.bronze(SOURCE), bronze(lake))


def only_lag(lake) -> ReaderLag:
    (lag,) = lags(lake)
    return lag


def ran(next_version: int, **position: Any) -> Step:
    return lambda lake: write_position(lake, "user_counts", next_version, **position)


def rebuilt(replayed: int, **row: Any) -> Step:
    return lambda lake: rebuild(lake, "user_counts", replayed, **row)


def optimized(lake: Lake) -> None:
    bronze(lake).optimize.compact()


CASES: dict[str, tuple[list[Step], int | None]] = {
    "commits of maintenance have nothing to read": ([ran(3), optimized], None),
    "what comes behind them has": ([ran(3), optimized, append], 4),
    "a batch that was begun and not committed": (
        [ran(1, batch=9), ran(3, batch=10, committed=False)],
        1,
    ),
    "a first one reads the whole version": ([ran(3, committed=False)], None),
    "whose files an OPTIMIZE takes away": ([ran(3, committed=False), optimized], 3),
    "of another table of this name": ([ran(1, table_id="another")], None),
    "of no known stream": ([lambda lake: write_position(lake, "gone", 2)], None),
    "what its old generation had not read": ([ran(1), rebuilt(1)], 2),
    # Delta looks for the version that a stream is to begin with.
    "the first commit after the seed must stay": ([rebuilt(2), optimized], 3),
    "a first batch begins with the seed again": (
        [rebuilt(0), ran(3, committed=False, generation=2)],
        1,
    ),
    "once it has begun it is a reader like others": ([rebuilt(0), ran(2, generation=2)], 2),
    "and has read all": ([rebuilt(0), ran(3, batch=1, generation=2)], None),
    "a rebuild from another table": ([rebuilt(0, table_id="another")], None),
}


@pytest.mark.parametrize("case", CASES)
def test_the_first_version_that_a_reader_still_needs(three_commits, case):
    steps, version = CASES[case]
    for step in steps:
        step(three_commits)
    assert [lag.version for lag in lags(three_commits)] == ([] if version is None else [version])


NOW = datetime(2026, 3, 31, 3, 20, tzinfo=UTC)
RETAINED = timedelta(days=7)
MICROSECOND = timedelta(microseconds=1)


def lag(since: datetime | None, stream: str = "user_counts") -> ReaderLag:
    return ReaderLag(stream, 5, since)


def test_a_reader_is_in_time_until_a_margin_before_its_files_may_go():
    last = NOW - RETAINED + MARGIN
    assert why_not_vacuum([lag(last)], RETAINED, NOW) is None
    assert why_not_vacuum([lag(last - MICROSECOND)], RETAINED, NOW) is not None


def test_a_reader_behind_by_more_than_half_of_what_the_log_keeps_is_a_finding():
    retained = timedelta(days=30)
    half = NOW - timedelta(days=15)
    assert lag_findings("bronze/user_events", [lag(half)], retained, NOW) == []
    (found,) = lag_findings("bronze/user_events", [lag(half - MICROSECOND)], retained, NOW)
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
        *((text, None) for text in ("", "interval", "forever", "interval 1 month", "7")),
    ],
)
def test_a_tables_retention_is_read_as_delta_reads_it_or_refused(text, expected):
    configuration = {LOG_RETENTION[0]: text}
    if expected is not None:
        assert retention(configuration, LOG_RETENTION) == expected
        return
    with refused("foreign_properties", subject=LOG_RETENTION[0]):
        retention(configuration, LOG_RETENTION)


def test_a_table_that_says_nothing_has_deltas_own_retention():
    assert retention({}, FILE_RETENTION) == timedelta(days=7)
    assert retention({}, LOG_RETENTION) == timedelta(days=30)


STREAM = stream_named("user_counts")
DAY = timedelta(days=1)


@pytest.fixture
def two_commits(lake):
    append(lake)
    append(lake)
    return lake


def read_up_to(lake: Lake, *next_versions: int) -> None:
    """Batches of the stream, all committed, that went on with these versions of bronze."""
    for batch, version in enumerate(next_versions):
        write_position(lake, STREAM.name, version, batch=batch)


def made_days_ago(lake: Lake, version: int, number: float) -> None:
    backdate(lake, version, datetime.now(UTC) - number * DAY)


def needed_version(lake: Lake) -> int | None:
    opened = open_stream(lake, STREAM)
    needed = needed_commit(lake, opened.generations, opened.bronze)
    return None if needed is None else needed.version


@pytest.mark.parametrize("without_data", [False, True])
def test_a_commit_without_rows_is_needed_and_so_is_the_last_batch_with_data(
    two_commits, without_data
):
    read_up_to(two_commits, 1, 2, *([2] if without_data else []))
    bronze(two_commits).optimize.compact()
    assert needed_version(two_commits) == (2 if without_data else 1)
    assert not has_waiting_rows(two_commits, STREAM)


@pytest.mark.parametrize(
    ("retained", "old", "young"),
    [(None, 16, 14), ("interval 90 days", 46, 44), ("interval 2 weeks", 8, 6)],
)
def test_a_stream_is_run_when_what_it_needs_is_older_than_half_of_what_the_log_keeps(
    two_commits, retained, old, young
):
    if retained is not None:
        set_properties(two_commits, logRetentionDuration=retained)
    read_up_to(two_commits, 1, bronze(two_commits).version() + 1)
    made_days_ago(two_commits, 0, 1000)
    made_days_ago(two_commits, 1, young)
    assert not has_waiting_rows(two_commits, STREAM)
    made_days_ago(two_commits, 1, old)
    assert has_waiting_rows(two_commits, STREAM)


def lose(lake: Lake, *versions: int) -> None:
    for version in versions:
        log_file(lake, version).unlink()


def check_cut_off(lake: Lake, is_cut_off: bool) -> None:
    opened = open_stream(lake, STREAM)
    if not is_cut_off:
        refuse_cut_off(lake, opened.generations, opened.bronze)
        return
    with refused("cleaned_up_version", command=f"./stateful rebuild {STREAM.name} --apply"):
        refuse_cut_off(lake, opened.generations, opened.bronze)
    assert has_waiting_rows(lake, STREAM)


def test_what_the_log_has_lost_is_told_also_while_nothing_is_new(two_commits):
    append(two_commits)
    read_up_to(two_commits, 1, 2, 3)
    bronze(two_commits).create_checkpoint()
    lose(two_commits, 0, 1)
    check_cut_off(two_commits, False)
    assert not has_waiting_rows(two_commits, STREAM)
    lose(two_commits, 2)
    check_cut_off(two_commits, True)


@pytest.mark.parametrize("committed", [False, True])
def test_a_first_batch_needs_the_version_that_it_is_a_snapshot_of(three_commits, committed):
    write_position(three_commits, STREAM.name, 2, committed=committed)
    assert needed_version(three_commits) == 1
    # Of version 2: what leads to 1 are commits, from the first on.
    bronze(three_commits).create_checkpoint()
    check_cut_off(three_commits, False)
    lose(three_commits, 0)
    check_cut_off(three_commits, True)


def test_a_first_batch_needs_no_commit_where_the_log_sums_its_version_up(two_commits):
    bronze(two_commits).create_checkpoint()
    write_position(two_commits, STREAM.name, 2, committed=False)
    append(two_commits)
    lose(two_commits, 0, 1)
    check_cut_off(two_commits, False)


def test_a_generation_that_has_not_run_says_that_the_log_has_lost_its_first_commits(two_commits):
    rebuild(two_commits, STREAM.name, replayed_version=0)
    check_cut_off(two_commits, False)
    bronze(two_commits).create_checkpoint()
    lose(two_commits, 0, 1)
    check_cut_off(two_commits, True)
