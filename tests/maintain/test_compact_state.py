"""Compaction: fewer files, no change logs to replay, and the very same state.

Held against a twin: a lake with the same data that is never compacted.
"""

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import SavepointRules, Stream
from include.stream_definition import load_definition
from spark_jobs.compact_state import compact
from spark_jobs.engines.spark_engine import SparkEngine
from tests.bronze import stamp
from tests.engines.lake_runs import arriving, drained, stored, table_of

HEALTH = replace(
    stream_named("service_health"),
    watermark_delay=timedelta(milliseconds=5),
    state_partitions=2,
    savepoints=SavepointRules(cadence=None),
)
BY_EVENT_TIME = replace(
    HEALTH, settings={"stale_after": timedelta(milliseconds=7), "time": "event"}
)
# Commits are a minute apart there.
BY_INGESTION = replace(
    HEALTH,
    watermark_delay=timedelta(0),
    settings={"stale_after": timedelta(seconds=90), "time": "processing"},
)

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("compaction"), pytest.mark.turn(1)]


def lines(rng: random.Random, time_us: int):
    return fold_of(HEALTH).event(f"service-{rng.randrange(12)}")


def fold_of(stream: Stream):
    return load_definition(stream).fold


def state_files(lake: Lake, pattern: str = "*") -> list[str]:
    state = Path(lake.checkpoint(HEALTH.name, 1)) / "state"
    return sorted(str(file.relative_to(state)) for file in state.rglob(pattern) if file.is_file())


def everything(spark: SparkSession, lake: Lake, stream: Stream):
    return stored(spark, lake, stream, fold_of(stream)), table_of(lake, stream, fold_of(stream))


@pytest.fixture
def twin(tmp_path):
    (tmp_path / "twin").mkdir()
    return Lake(str(tmp_path / "twin"))


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(BY_EVENT_TIME, marks=pytest.mark.e2e),
        pytest.param(BY_INGESTION, marks=pytest.mark.full),
    ],
    ids=["by event time", "by ingestion"],
)
def test_a_compacted_stream_goes_on_as_its_twin_does(spark, lake, twin, stream):
    commits = stamp(arriving(1, lines, commits=4, size=30))
    for each in (lake, twin):
        drained(spark, each, stream, fold_of(stream), commits[:3], runs=3)
    compact(SparkEngine(spark), lake, stream)
    (run,) = read_ops(lake, "runs", {"job": "compact_state"}).to_pylist()
    # A JVM's heap alone is more; the workers' interpreters, too.
    assert run["jvm_rss_bytes"] > 100e6
    assert run["python_rss_bytes"] > 50e6
    assert everything(spark, lake, stream) == everything(spark, twin, stream)
    # Two snapshots in each partition, the newest one at the end; nothing before the older one.
    assert len(state_files(lake, "*.zip")) == 2 * stream.state_partitions
    assert len(state_files(lake, "*.changelog")) == 2 * stream.state_partitions
    assert len(state_files(lake)) < len(state_files(twin))
    for each in (lake, twin):
        drained(spark, each, stream, fold_of(stream), commits[3:], runs=1)
    assert everything(spark, lake, stream) == everything(spark, twin, stream)
