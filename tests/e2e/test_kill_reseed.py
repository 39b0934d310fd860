"""Recomputes and reseeds, really killed at each of their steps: run again, the tables are right."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.lake.generations import read_generations
from include.lake.lease import wait_until
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.plans.reseed_plan import ReseedOptions
from include.registry import stream_named
from include.settings import Stream
from include.spark.submit import job_environment, submit_command
from include.stream_definition import load_definition
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.bronze import append_commit
from tests.engines.lake_runs import drained, table_of
from tests.late_lakes import (
    DAY_US,
    START_US,
    admitted,
    at,
    between,
    commits,
    rows_of,
    truth,
    until_of,
)

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.full]

SIGNALS, COUNTS = stream_named("device_signals"), stream_named("user_counts")
DEADLINE_S = 300
Appears = Callable[[], bool]
SHORT_RUN = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def kill_when(lake: Lake, stream: Stream, job: str, args: list[str], appears: Appears) -> None:
    """Run a job, and kill all of it as soon as a file is there."""
    command = submit_command(job, ["--stream", stream.name, "--lake", lake.root, *args], stream)
    environment = os.environ | job_environment() | SHORT_RUN
    running = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        wait_until(lambda: appears() or running.poll() is not None, DEADLINE_S, interval=0.002)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    assert appears()


def next_commit(lake: Lake, table: str, nth: int = 1) -> Appears:
    """Whether the nth commit from now on is made; a new table's first one creates it. Of savepoints
    whether there is another."""
    if table.startswith("savepoints"):
        folder = Path(lake.root, table)
        known = set(folder.glob("*/manifest.json"))
        return lambda: not known.issuperset(folder.glob("*/manifest.json"))
    path = f"{lake.root}/{table}"
    version = DeltaTable(path).version() if lake.is_delta_table(path) else 0
    return Path(path, "_delta_log", f"{version + nth:020}.json").exists


def bronze_of(stream: Stream, seed: int):
    """Three days, of which the last has not come yet."""
    stamped = commits(seed, days=3, source=stream.source, late=4)
    return stamped[:6], stamped[6:]


def recorded(lake: Lake, stream: Stream, job: str) -> int:
    return read_ops(lake, "runs", {"subject": stream.name, "job": job}).num_rows


RECOMPUTE_STEPS = {
    "replayed, with a savepoint": "savepoints/device_signals",
    "the table's commit": "tables/device_signals",
    "recorded": "ops/runs",
}


@pytest.mark.parametrize("step", RECOMPUTE_STEPS)
def test_a_recompute_that_was_killed_is_done_by_the_next(spark, lake, step):
    fold, (stamped, _) = load_definition(SIGNALS).fold, bronze_of(SIGNALS, seed=21)
    drained(spark, lake, SIGNALS, fold, stamped, runs=1)
    live, version = table_of(lake, SIGNALS, fold), version_of(lake, SIGNALS)
    day_us = START_US, START_US + DAY_US
    interval = ["--from", at(day_us[0]).isoformat(), "--until", at(day_us[1]).isoformat()]
    appears = next_commit(lake, RECOMPUTE_STEPS[step])
    kill_when(lake, SIGNALS, "recompute_interval", interval, appears)
    assert (version_of(lake, SIGNALS) > version) == (step != "replayed, with a savepoint")
    assert recorded(lake, SIGNALS, "recompute_interval") == (step == "recorded")

    recompute(SparkEngine(spark), lake, SIGNALS, at(day_us[0]), at(day_us[1]))
    table, end_us = table_of(lake, SIGNALS, fold), until_of(SIGNALS, stamped)
    assert between(table, *day_us) == between(truth(fold, rows_of(stamped), end_us), *day_us)
    assert between(table, day_us[1], end_us) == between(live, day_us[1], end_us)
    assert version_of(lake, SIGNALS) == version + 1


def version_of(lake: Lake, stream: Stream) -> int:
    return DeltaTable(lake.table(stream.name)).version()


# How many commits of which table, in their order; a first row comes after the table's creation.
RESEED_STEPS: Mapping[str, tuple[str, int]] = {
    "savepoint": ("savepoints/{}", 1),
    "table": ("tables/{}", 1),
    "recorded": ("ops/runs", 1),
}


@pytest.mark.parametrize("stream", [SIGNALS, COUNTS], ids=lambda stream: stream.name)
@pytest.mark.parametrize("step", RESEED_STEPS)
def test_a_reseed_that_was_killed_is_done_or_has_changed_nothing(spark, lake, step, stream):
    fold, (before, after) = load_definition(stream).fold, bronze_of(stream, seed=22)
    drained(spark, lake, stream, fold, before, runs=1)
    version = version_of(lake, stream)
    table, nth = RESEED_STEPS[step]
    appears = next_commit(lake, table.format(stream.name), nth)
    kill_when(lake, stream, "reseed_stream", [], appears)
    is_done = step != "savepoint"
    assert read_generations(lake, stream.name).number == (2 if is_done else 1)
    assert (version_of(lake, stream) > version) == is_done
    assert recorded(lake, stream, "reseed_stream") == (step == "recorded")
    if not is_done:
        reseed(SparkEngine(spark), lake, stream, ReseedOptions())
    check_next_runs(spark, lake, stream, before, after)


def check_next_runs(spark, lake, stream, before, after) -> None:
    fold = load_definition(stream).fold
    drain(SparkEngine(spark), lake, stream)
    assert read_generations(lake, stream.name).number == 2
    right = truth(fold, rows_of(before), until_of(stream, before))
    assert table_of(lake, stream, fold) == right
    drained(spark, lake, stream, fold, after, runs=1)
    right = truth(fold, admitted(stream, before, after), until_of(stream, after))
    assert table_of(lake, stream, fold) == right


@pytest.mark.parametrize("stream", [SIGNALS, COUNTS], ids=lambda stream: stream.name)
@pytest.mark.parametrize("appears", ["bronze", "offsets", "table"])
def test_the_first_run_after_a_reseed_is_repeated_when_it_was_killed(spark, lake, appears, stream):
    fold, (before, after) = load_definition(stream).fold, bronze_of(stream, seed=23)
    drained(spark, lake, stream, fold, before, runs=1)
    reseed(SparkEngine(spark), lake, stream, ReseedOptions())
    for rows in after:
        append_commit(lake, stream.source, fold, rows)
    files = {
        "bronze": next_commit(lake, f"bronze/{stream.source}"),  # the row that makes a batch run
        "offsets": Path(lake.checkpoint(stream.name, 2), "offsets", "0"),
        "table": next_commit(lake, f"tables/{stream.name}"),
    }
    kill_when(lake, stream, "run_stream", [], files[appears])
    drain(SparkEngine(spark), lake, stream)
    right = truth(fold, admitted(stream, before, after), until_of(stream, after))
    assert table_of(lake, stream, fold) == right
