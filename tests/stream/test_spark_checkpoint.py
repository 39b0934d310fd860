"""The figures of a checkpoint that Spark wrote, against what Spark does with it next."""

import json
import os
import random
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from include.lake.ops import read_ops
from include.maintain.check_checkpoint import check_checkpoint
from include.maintain.tune_rocksdb import (
    COMPACTED,
    FLUSHED,
    MAX_MEMORY_MB,
    WRITTEN,
    run_settings,
)
from include.registry import stream_named
from include.settings import Limits, SavepointRules
from include.stream.checkpoint import CheckpointSize, measure_checkpoint
from include.streams import user_counts
from include.streams.user_counts import UserEvent
from spark_jobs.compact_state import compact
from spark_jobs.engines.spark_engine import SparkEngine
from tests.bronze import stamp
from tests.engines.lake_runs import drained, with_conf
from tests.stream.spark_checkpoint import checksum_of

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.turn(2)]

FOLD = user_counts.FOLD
# The memory of the test process is not that of a job.
STREAM = replace(
    stream_named("user_counts"),
    buckets=5,
    state_partitions=2,
    limits=Limits(rss_bytes=None),
    savepoints=SavepointRules(cadence=None),
)
HOUR_US = 3_600_000_000
START_US = 1_750_000_000_000_000


def rows(commits: int):
    rng = random.Random(7)
    return stamp(
        [
            [
                UserEvent(f"user {rng.randrange(50)}", START_US + number * HOUR_US + n)
                for n in range(100)
            ]
            for number in range(commits)
        ]
    )


def test_what_spark_wrote_is_measured_as_spark_reads_it(spark, lake):
    root = Path(lake.checkpoint(STREAM.name, 1))
    commits = rows(5)

    def run(number: int) -> CheckpointSize:
        drained(spark, lake, STREAM, FOLD, commits[number : number + 1], runs=1)
        return measured(lake)

    first = run(0)
    assert first.uncommitted == 0
    # Each run loads what the one before has left.
    second = run(1)
    assert replayed_by_batch(lake, first.begun + 1) == replay_of(first)
    assert replay_of(second) > replay_of(first)

    run(2)
    assert replayed_by_batch(lake, second.begun + 1) == replay_of(second)
    with with_conf(spark, "spark.sql.shuffle.partitions", str(STREAM.state_partitions)):
        compact(SparkEngine(spark), lake, STREAM)
    compacted = measured(lake)
    assert replay_of(compacted) == 0
    assert len(list(root.rglob("*.zip"))) == 2 * STREAM.state_partitions  # snapshots
    named = {name for path in root.rglob("*.zip") for name in ssts_in(path)}
    assert named == {path.name for path in root.rglob("*.sst")}

    # A batch that was written, but not committed: the next run repeats it.
    newest = root / "commits" / str(run(3).committed)
    newest.unlink()
    checksum_of(newest).unlink()
    uncommitted = measured(lake)
    assert uncommitted.uncommitted == 1
    run(4)
    assert replayed_by_batch(lake, int(newest.name)) == replay_of(uncommitted) > 0

    result = check_checkpoint(lake, STREAM)
    assert result.findings == ()
    assert result.why_not_compact is not None


def measured(lake) -> CheckpointSize:
    """Measure a checkpoint, and compare with the file system."""
    size = measure_checkpoint(lake, STREAM.name, 1)
    root = Path(lake.checkpoint(STREAM.name, 1))
    assert (size.measured.bytes, size.measured.files) == counted(root)
    assert len(size.measured.partitions) == STREAM.state_partitions
    for part in size.measured.partitions:
        assert size.measured.bytes_of[part] == counted(root / part)[0]
    assert size.verdict == "ok"
    return size


def counted(folder: Path) -> tuple[int, int]:
    files = [Path(at) / name for at, _, names in os.walk(folder) for name in names]
    return sum(path.stat().st_size for path in files), len(files)


def replay_of(size: CheckpointSize) -> int:
    """The change logs of all partitions, which have as many each."""
    return size.measured.replay_versions * STREAM.state_partitions


def replayed_by_batch(lake, batch: int) -> int:
    """The change logs that Spark says it replayed when it loaded the state for `batch`, the last time."""
    *_, row = read_ops(lake, "batches", {"batch_id": batch}).sort_by("committed_at").to_pylist()
    (operator,) = json.loads(row["state_metrics"])
    assert {WRITTEN, FLUSHED, COMPACTED} <= operator.keys()
    assert row["memory_mb"] == int(
        run_settings(lake, STREAM)[MAX_MEMORY_MB]
    )  # what the tuner goes by
    return int(operator["rocksdbNumReplayChangelogFiles"])


def ssts_in(snapshot: Path) -> list[str]:
    with zipfile.ZipFile(snapshot) as archive:
        metadata = json.loads(archive.read("metadata").decode().split("\n", 1)[1])
    return [file["dfsSstFileName"] for file in metadata["sstFiles"]]
