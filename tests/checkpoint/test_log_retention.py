"""What a stream needs of bronze's log, and that it does not wait until the log is cut there."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from include.checkpoint.bronze_readers import needed_commit, refuse_cut_off
from include.lake.generations import read_generations
from include.lake.paths import Lake
from include.plans.open_stream import has_waiting_rows
from include.plans.reseed_plan import ReseedOptions
from include.registry import stream_named
from include.streams import device_signals
from include.streams.device_signals import Signal
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.bronze import Happened, append_commit, stamp
from tests.checkpoint.bronze_lake import (
    SOURCE,
    append,
    backdate,
    bronze,
    log_file,
    set_properties,
    write_position,
)
from tests.checkpoint.bronze_lake import (
    reseed as reseeded,
)
from tests.engines.lake_runs import table_of
from tests.late_lakes import DAYS_US, days, in_runs, is_right, live_result, small, with_late_row
from tests.refused import refused

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


def test_a_generation_that_has_only_begun_needs_the_commits_since_its_reseed(two_commits):
    reseeded(two_commits, STREAM.name, replayed_version=0)
    assert needed_version(two_commits) == 1
    write_position(two_commits, STREAM.name, 2, generation=2)
    assert needed_version(two_commits) == 1


def test_a_generation_that_has_not_run_says_that_the_log_has_lost_its_first_commits(two_commits):
    reseeded(two_commits, STREAM.name, replayed_version=0)
    refuse_cut_off(two_commits, read_generations(two_commits, STREAM.name), SOURCE)
    bronze(two_commits).create_checkpoint()
    for version in (0, 1):
        log_file(two_commits, version).unlink()
    with refused("cleaned_up_version", command=f"./stateful reseed {STREAM.name} --apply"):
        refuse_cut_off(two_commits, read_generations(two_commits, STREAM.name), SOURCE)


def test_a_generation_that_has_not_run_needs_nothing_that_its_reseed_has_read(two_commits):
    newest = bronze(two_commits).version()
    reseeded(two_commits, STREAM.name, replayed_version=newest)
    assert needed_version(two_commits) is None


# On Spark: with Delta's own clean-up of the log.

SIGNALS, FOLD = small("device_signals"), device_signals.FOLD
KEPT = "'delta.logRetentionDuration' = 'interval 30 days', 'delta.checkpointInterval' = '1'"


def set_on_bronze(spark, lake: Lake, properties: str) -> None:
    """A commit of bronze without rows. Each makes a checkpoint, and cleans the log up."""
    spark.sql(f"ALTER TABLE delta.`{lake.bronze(SIGNALS.source)}` SET TBLPROPERTIES ({properties})")


def log_of(lake: Lake) -> Path:
    return Path(lake.bronze(SIGNALS.source), "_delta_log")


def time_passes(lake: Lake, span: timedelta) -> None:
    """As if all of bronze's log had been written so much earlier."""
    for file in [file for file in log_of(lake).iterdir() if file.is_file()]:
        then = file.stat().st_mtime - span.total_seconds()
        if file.suffix == ".json" and file.stem.isdecimal():
            write_earlier(file, span)
        os.utime(file, (then, then))
    for file in log_of(lake).glob(".*.json.crc"):
        file.unlink()  # Hadoop's, of what was in the files before


def write_earlier(commit: Path, span: timedelta) -> None:
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] -= span // timedelta(milliseconds=1)
    commit.write_text("\n".join(map(json.dumps, actions)))


def commits_in_log(lake: Lake) -> set[int]:
    return {int(file.stem) for file in log_of(lake).glob("*.json") if file.stem.isdecimal()}


def with_late_rows_last(spark, lake: Lake):
    """The stream's last run had late rows only: no batch without data came after it."""
    stamped = with_late_row(days(1, seed=61))
    in_runs(spark, lake, SIGNALS, stamped[:3], runs=1)
    set_on_bronze(spark, lake, KEPT)
    in_runs(spark, lake, SIGNALS, stamped[3:], runs=1)
    return stamped


def with_new_rows(stamped):
    """A day later the source wakes up."""
    events = [[Happened(row.event, row.time_us) for row in commit] for commit in stamped]
    time_us = DAYS_US[2]
    return stamp([*events, [Happened(Signal(2, time_us, 1), time_us)]])


@pytest.mark.spark
@pytest.mark.full
def test_a_stream_of_a_silent_source_outlives_the_log(spark, lake):
    stamped = with_late_rows_last(spark, lake)
    before = commits_in_log(lake)
    for month in range(2):
        time_passes(lake, 25 * DAY)
        runs = 0
        while has_waiting_rows(lake, SIGNALS):
            drain(SparkEngine(spark), lake, SIGNALS)
            runs += 1
        assert 1 <= runs <= 2
        set_on_bronze(spark, lake, f"'month' = '{month}'")
    assert not before & commits_in_log(lake)
    stamped = with_new_rows(stamped)
    append_commit(lake, SIGNALS.source, FOLD, stamped[-1])
    drain(SparkEngine(spark), lake, SIGNALS)
    assert table_of(lake, SIGNALS, FOLD) == live_result(SIGNALS, FOLD, stamped).table


@pytest.mark.spark
@pytest.mark.full
def test_a_stream_that_was_cut_off_says_so_and_is_made_anew(spark, lake):
    stamped = with_late_rows_last(spark, lake)
    time_passes(lake, 90 * DAY)
    set_on_bronze(spark, lake, "'after' = 'three months'")
    assert len(commits_in_log(lake)) == 1
    assert has_waiting_rows(lake, SIGNALS)
    stamped = with_new_rows(stamped)
    append_commit(lake, SIGNALS.source, FOLD, stamped[-1])
    with refused("cleaned_up_version", command=f"./stateful reseed {SIGNALS.name} --apply"):
        drain(SparkEngine(spark), lake, SIGNALS)
    reseed(SparkEngine(spark), lake, SIGNALS, ReseedOptions())
    assert is_right(lake, SIGNALS, stamped)
    drain(SparkEngine(spark), lake, SIGNALS)
    assert is_right(lake, SIGNALS, stamped)
