"""What a stream needs of bronze's log, and that it does not wait until the log is cut there."""

from datetime import UTC, datetime, timedelta

import pytest

from include.lake.generations import read_generations
from include.lake.paths import Lake
from include.registry import stream_named
from include.stream.bronze_readers import needed_commit, refuse_cut_off
from include.stream.open_stream import has_waiting_rows
from tests.refused import refused
from tests.stream.bronze_lake import (
    SOURCE,
    append,
    backdate,
    bronze,
    log_file,
    set_properties,
    write_position,
)
from tests.stream.bronze_lake import (
    reseed as reseeded,
)

STREAM = stream_named("user_counts")
DAY = timedelta(days=1)


@pytest.fixture
def two_commits(lake):
    append(lake)
    append(lake)
    return lake


def ran(lake: Lake, *next_versions: int) -> None:
    """Batches of the stream, all committed, that went on with these versions of bronze."""
    for batch, version in enumerate(next_versions):
        write_position(lake, STREAM.name, version, batch=batch)


def made_days_ago(lake: Lake, version: int, number: float) -> None:
    backdate(lake, version, datetime.now(UTC) - number * DAY)


def needed_version(lake: Lake) -> int | None:
    needed = needed_commit(lake, read_generations(lake, STREAM.name), SOURCE)
    return None if needed is None else needed.version


def test_after_a_batch_without_data_nothing_is_needed_while_nothing_came(two_commits):
    ran(two_commits, 1, 2, 2)
    for version in (0, 1):
        made_days_ago(two_commits, version, 1000)
    assert needed_version(two_commits) is None
    assert not has_waiting_rows(two_commits, STREAM)


@pytest.mark.parametrize("without_data", [False, True])
def test_a_commit_without_rows_is_needed_and_so_is_the_last_batch_with_data(
    two_commits, without_data
):
    ran(two_commits, 1, 2, *([2] if without_data else []))
    bronze(two_commits).optimize.compact()
    assert needed_version(two_commits) == (2 if without_data else 1)
    assert not has_waiting_rows(two_commits, STREAM)


@pytest.mark.parametrize(
    ("kept", "old", "young"),
    [(None, 16, 14), ("interval 90 days", 46, 44), ("interval 2 weeks", 8, 6)],
)
def test_a_stream_is_run_when_what_it_needs_is_older_than_half_of_what_the_log_keeps(
    two_commits, kept, old, young
):
    if kept is not None:
        set_properties(two_commits, logRetentionDuration=kept)
    ran(two_commits, 1, bronze(two_commits).version() + 1)
    made_days_ago(two_commits, 0, 1000)
    made_days_ago(two_commits, 1, young)
    assert not has_waiting_rows(two_commits, STREAM)
    made_days_ago(two_commits, 1, old)
    assert has_waiting_rows(two_commits, STREAM)


def test_what_the_log_has_lost_is_told_also_while_nothing_is_new(two_commits):
    ran(two_commits, 1, 2)
    append(two_commits)
    ran(two_commits, 1, 2, 3)
    bronze(two_commits).create_checkpoint()
    for version in (0, 1):
        log_file(two_commits, version).unlink()
    refuse_cut_off(two_commits, read_generations(two_commits, STREAM.name), SOURCE)
    assert not has_waiting_rows(two_commits, STREAM)
    log_file(two_commits, 2).unlink()
    assert has_waiting_rows(two_commits, STREAM)
    with refused("cleaned_up_version", command=f"./stateful reseed {STREAM.name} --apply"):
        refuse_cut_off(two_commits, read_generations(two_commits, STREAM.name), SOURCE)


@pytest.mark.parametrize("committed", [False, True])
def test_a_first_batch_needs_the_version_that_it_is_a_snapshot_of(lake, committed):
    for _ in range(3):
        append(lake)
    ran(lake)
    write_position(lake, STREAM.name, 2, committed=committed)
    assert needed_version(lake) == 1
    bronze(lake).create_checkpoint()  # of version 2: what leads to 1 are commits, from the first on
    generations = read_generations(lake, STREAM.name)
    refuse_cut_off(lake, generations, SOURCE)
    log_file(lake, 0).unlink()
    with refused("cleaned_up_version", command=f"./stateful reseed {STREAM.name} --apply"):
        refuse_cut_off(lake, generations, SOURCE)
    assert has_waiting_rows(lake, STREAM)


def test_a_first_batch_needs_no_commit_where_the_log_sums_its_version_up(lake):
    append(lake)
    append(lake)
    bronze(lake).create_checkpoint()
    write_position(lake, STREAM.name, 2, committed=False)
    append(lake)
    for version in (0, 1):
        log_file(lake, version).unlink()
    refuse_cut_off(lake, read_generations(lake, STREAM.name), SOURCE)


def test_a_generation_that_has_not_run_says_that_the_log_has_lost_its_first_commits(two_commits):
    reseeded(two_commits, STREAM.name, replayed_version=0)
    refuse_cut_off(two_commits, read_generations(two_commits, STREAM.name), SOURCE)
    bronze(two_commits).create_checkpoint()
    for version in (0, 1):
        log_file(two_commits, version).unlink()
    with refused("cleaned_up_version", command=f"./stateful reseed {STREAM.name} --apply"):
        refuse_cut_off(two_commits, read_generations(two_commits, STREAM.name), SOURCE)
