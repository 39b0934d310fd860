"""Who still needs what of bronze's past, from checkpoints and the log."""

from datetime import UTC, datetime

import pytest

from include.checkpoint.bronze_readers import Lag, read_lags
from tests.checkpoint.bronze_lake import (
    SOURCE,
    append,
    backdate,
    bronze,
    reseed,
    write_position,
)

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


def test_a_stream_needs_the_first_commit_that_it_has_not_read_and_says_since_when(three_commits):
    write_position(three_commits, "user_counts", next_version=1)
    backdate(three_commits, 1, MADE)
    lag = only_lag(three_commits)
    assert (lag.reader.stream, lag.version, lag.since) == ("user_counts", 1, MADE)
    assert not lag.reader.is_starting


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


def test_a_checkpoint_of_no_known_stream_holds_nothing_back(three_commits):
    write_position(three_commits, "gone", next_version=2)
    assert lags(three_commits) == []


def test_what_its_old_generation_had_not_read_is_not_needed_any_more(three_commits):
    write_position(three_commits, "user_counts", next_version=1)
    reseed(three_commits, "user_counts", 1)
    assert only_lag(three_commits).version == 2


def test_the_first_commit_after_the_seed_must_stay_whatever_is_in_it(three_commits):
    """Delta looks for the version that a stream is to begin with."""
    reseed(three_commits, "user_counts", 2)
    bronze(three_commits).optimize.compact()
    assert only_lag(three_commits).version == 3


def test_a_first_batch_that_was_not_committed_begins_with_the_seed_again(three_commits):
    reseed(three_commits, "user_counts", 0)
    write_position(three_commits, "user_counts", 3, committed=False, generation=2)
    assert only_lag(three_commits).version == 1


def test_once_it_has_begun_it_is_a_reader_like_others(three_commits):
    reseed(three_commits, "user_counts", 0)
    write_position(three_commits, "user_counts", 2, generation=2)
    assert only_lag(three_commits).version == 2
    write_position(three_commits, "user_counts", 3, batch=1, generation=2)
    assert lags(three_commits) == []


def test_a_reseed_from_another_table_of_this_name_needs_nothing_of_this_one(three_commits):
    reseed(three_commits, "user_counts", 0, table_id="another")
    assert lags(three_commits) == []
