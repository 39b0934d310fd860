"""The tasks behind a run act: a checkpoint that grew is found and compacted, a setting that made a run worse
is rolled back."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from deltalake import DeltaTable

from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.maintain.check_checkpoint import check_checkpoint, record_check
from include.maintain.tune_rocksdb import (
    COMPACTED,
    FLUSHED,
    MAX_MEMORY_MB,
    ROLLED_BACK,
    TRIED,
    WRITTEN,
    run_settings,
)
from include.observe.stream_line import Recorded
from include.settings import MIB, Limits, Stream
from include.steps import STEPS, StreamRun
from spark_jobs.compact_state import compact
from spark_jobs.engines.spark_engine import SparkEngine
from tests.engines.lake_runs import drained, with_conf
from tests.engines.live_lakes import expected_rows, local_run, table_rows
from tests.stream.test_spark_checkpoint import FOLD, STREAM, rows

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.turn(2)]

LIMITED = replace(STREAM, limits=Limits(replay_versions=4, rss_bytes=None))


def test_a_checkpoint_that_grew_is_found_and_compacted(spark, lake):
    commits, sizes = rows(5), []
    for number in range(4):
        drained(spark, lake, LIMITED, FOLD, commits[number : number + 1], runs=1)
        sizes.append(check_checkpoint(lake, LIMITED))
    assert [each.why_not_compact is None for each in sizes] == [False, False, True, True]
    assert [found.finding for found in sizes[-1].findings] == ["replay_versions"]
    record_check(lake, sizes[-1])
    with with_conf(spark, "spark.sql.shuffle.partitions", str(LIMITED.state_partitions)):
        compact(SparkEngine(spark), lake, LIMITED)
    after = check_checkpoint(lake, LIMITED)
    assert after.findings == ()
    assert after.why_not_compact is not None
    assert after.size.measured.files < sizes[-1].size.measured.files
    assert after.size.measured.state_bytes < sizes[-1].size.measured.state_bytes
    drained(spark, lake, LIMITED, FOLD, commits[4:], runs=1)
    assert table_rows(lake, STREAM, FOLD) == expected_rows(local_run(FOLD, commits), FOLD)
    assert open_findings(lake) == ["replay_versions"]  # a compaction is no check
    record_check(lake, check_checkpoint(lake, LIMITED))
    assert open_findings(lake) == []


def open_findings(lake: Lake) -> list[str]:
    recorded = Recorded(lake, datetime.now(UTC) - timedelta(days=1), LIMITED)
    return [row["finding"] for row in recorded.open_findings(LIMITED)]


def measure(lake: Lake, memory_mb: int, rewritten: int) -> None:
    """Make batches with that memory have written 4 MiB, and rewritten so much of it."""
    metrics = json.dumps([{WRITTEN: 4 * MIB, FLUSHED: rewritten, COMPACTED: 0}])
    batches = DeltaTable(lake.ops("batches"))
    batches.update(new_values={"state_metrics": metrics}, predicate=f"memory_mb = {memory_mb}")


def tune(lake: Lake, stream: Stream) -> list[str]:
    """Take the step; return what is recorded of the memory behind it."""
    (step,) = (step for step in STEPS if step.name == "tune_rocksdb")
    assert step.look is not None
    step.look(StreamRun(lake, stream))
    found = read_ops(lake, "findings").sort_by("found_at")["finding"].to_pylist()
    return [each for each in found if each.startswith("memory_")]


def test_a_setting_that_made_a_run_worse_is_rolled_back(spark, lake):
    commits = rows(3)
    stream = replace(STREAM, limits=Limits(rss_bytes=None))
    drained(spark, lake, stream, FOLD, commits[:2], runs=2)
    before = run_settings(lake, stream)
    measure(lake, int(before[MAX_MEMORY_MB]), rewritten=16 * MIB)
    assert tune(lake, stream) == [TRIED]
    tried = int(run_settings(lake, stream)[MAX_MEMORY_MB])
    assert tried > int(before[MAX_MEMORY_MB])
    drained(spark, lake, stream, FOLD, commits[2:], runs=1)
    measure(lake, tried, rewritten=20 * MIB)
    assert tune(lake, stream) == [TRIED, ROLLED_BACK]
    assert run_settings(lake, stream) == before
