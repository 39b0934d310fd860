"""Who still needs what of bronze's past, from checkpoints and the log."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from include.lake import LakeError
from include.table_care.bronze_readers import Lag, read_lags
from tests.table_care.bronze_lake import SOURCE, append, backdate, bronze, log_file, write_position

MADE = datetime(2026, 3, 5, 12, 30, tzinfo=UTC)


@pytest.fixture
def three_commits(lake):
    for _ in range(3):
        append(lake)
    return lake


def lags(lake) -> list[Lag]:
    return read_lags(lake, lake.bronze(SOURCE), bronze(lake))


def only_lag(lake) -> Lag:
    (lag,) = lags(lake)
    return lag


def test_a_stream_that_has_not_run_needs_nothing_of_the_past(three_commits):
    assert lags(three_commits) == []


def test_a_stream_that_has_read_everything_needs_nothing(three_commits):
    write_position(three_commits, "user_counts", next_version=3)
    assert lags(three_commits) == []


def test_a_stream_needs_the_first_commit_that_it_has_not_read_and_says_since_when(three_commits):
    write_position(three_commits, "user_counts", next_version=1)
    backdate(three_commits, 1, MADE)
    lag = only_lag(three_commits)
    assert (lag.reader.stream, lag.version, lag.since) == ("user_counts", 1, MADE)
    assert not lag.reader.is_starting
    assert not lag.reader.is_leftover


def test_commits_of_maintenance_have_nothing_to_read(three_commits):
    write_position(three_commits, "user_counts", next_version=3)
    bronze(three_commits).optimize.compact()
    assert lags(three_commits) == []
    append(three_commits)
    assert only_lag(three_commits).version == 4


def test_a_batch_that_was_begun_and_not_committed_is_still_to_be_read(three_commits):
    write_position(three_commits, "user_counts", next_version=1, batch=9)
    write_position(three_commits, "user_counts", next_version=3, batch=10, committed=False)
    assert only_lag(three_commits).version == 1


def test_a_first_batch_that_was_not_committed_needs_the_whole_version_it_reads(three_commits):
    """OPTIMIZE brings it nothing, and yet takes the files of that version away."""
    write_position(three_commits, "user_counts", next_version=3, committed=False)
    assert lags(three_commits) == []
    bronze(three_commits).optimize.compact()
    lag = only_lag(three_commits)
    assert (lag.reader.is_starting, lag.version) == (True, 3)


def test_a_position_in_another_table_of_this_name_needs_nothing_of_this_one(three_commits):
    write_position(three_commits, "user_counts", next_version=1, table_id="another")
    assert lags(three_commits) == []


def test_a_checkpoint_of_no_known_stream_counts_as_a_left_over(three_commits):
    write_position(three_commits, "gone", next_version=2)
    assert only_lag(three_commits).reader.is_leftover


def test_a_commit_that_the_log_no_longer_has_has_no_time(three_commits):
    write_position(three_commits, "user_counts", next_version=1)
    three = bronze(three_commits)
    three.create_checkpoint()
    log_file(three_commits, 1).unlink()
    lag = only_lag(three_commits)
    assert (lag.version, lag.since) == (1, None)


def test_the_checkpoints_of_ingestion_are_no_readers(three_commits):
    Path(three_commits.ingest_checkpoint(SOURCE), "offsets").mkdir(parents=True)
    assert lags(three_commits) == []


def test_a_position_that_cannot_be_read_is_named(three_commits):
    write_position(three_commits, "user_counts", next_version=1)
    Path(three_commits.checkpoint("user_counts", 1), "offsets", "0").write_text("v1\n{}\n")
    with pytest.raises(LakeError, match="user_counts/1/offsets/0 is not the offset"):
        lags(three_commits)
