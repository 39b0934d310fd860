"""Who still needs what of bronze's past, from checkpoints and the log."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from include.lake.paths import Lake
from include.stream.bronze_readers import Lag, read_lags
from tests.stream.bronze_lake import (
    SOURCE,
    append,
    backdate,
    bronze,
    reseed,
    write_position,
)

Step = Callable[[Lake], object]
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
    assert (lag.stream, lag.version, lag.since) == ("user_counts", 1, MADE)


def ran(next_version: int, **position: Any) -> Step:
    return lambda lake: write_position(lake, "user_counts", next_version, **position)


def reseeded(replayed: int, **row: Any) -> Step:
    return lambda lake: reseed(lake, "user_counts", replayed, **row)


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
    "what its old generation had not read": ([ran(1), reseeded(1)], 2),
    # Delta looks for the version that a stream is to begin with.
    "the first commit after the seed must stay": ([reseeded(2), optimized], 3),
    "a first batch begins with the seed again": (
        [reseeded(0), ran(3, committed=False, generation=2)],
        1,
    ),
    "once it has begun it is a reader like others": ([reseeded(0), ran(2, generation=2)], 2),
    "and has read all": ([reseeded(0), ran(3, batch=1, generation=2)], None),
    "a reseed from another table": ([reseeded(0, table_id="another")], None),
}


@pytest.mark.parametrize("case", CASES)
def test_the_first_version_that_a_reader_still_needs(three_commits, case):
    steps, version = CASES[case]
    for step in steps:
        step(three_commits)
    assert [lag.version for lag in lags(three_commits)] == ([] if version is None else [version])
