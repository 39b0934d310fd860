"""What comes after each run acts: a checkpoint that grew is found and compacted, and a setting that made a
run worse is rolled back."""

import json
from dataclasses import replace

import pytest

from include.care.check_checkpoint import check_checkpoint
from include.care.rocksdb.settings import MAX_MEMORY_MB
from include.care.rocksdb.tune_rocksdb import (
    COMPACTED,
    FLUSHED,
    WRITTEN,
    active_profile,
    format_outcome,
    trial_findings,
    tune_rocksdb,
)
from include.checkpoint.committed_batch import BATCH_KEY
from include.lake.ops import read_ops, update_ops
from include.lake.paths import Lake
from include.settings import MIB, Limits
from spark_jobs.compact_state import compact
from spark_jobs.engines.spark_engine import SparkEngine
from tests.checkpoint.test_spark_checkpoint import FOLD, STREAM, rows
from tests.engines.lake_runs import drained, with_conf

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.turn(2)]

LIMITED = replace(STREAM, limits=Limits(replay_versions=4, rss_bytes=None))


def test_a_checkpoint_that_grew_is_found_and_compacted(spark, lake):
    commits, sizes = rows(4), []
    for number in range(4):
        drained(spark, lake, LIMITED, FOLD, commits[number : number + 1], runs=1)
        sizes.append(check_checkpoint(lake, LIMITED))
    assert [each.compaction.needed for each in sizes] == [False, False, True, True]
    assert [found.finding for found in sizes[-1].findings] == ["replay_versions"]
    with with_conf(spark, "spark.sql.shuffle.partitions", str(LIMITED.state_partitions)):
        compact(SparkEngine(spark), lake, LIMITED)
    after = check_checkpoint(lake, LIMITED)
    assert (after.findings, after.compaction.needed) == ((), False)
    assert after.size.files < sizes[-1].size.files
    assert after.size.state_bytes < sizes[-1].size.state_bytes


def measure(lake: Lake, profile: int, rewritten: int) -> None:
    """As if batches under a profile had written 4 MiB, and rewritten so much of it."""
    batches = read_ops(lake, "batches", {"profile": profile}).to_pylist()
    metrics = json.dumps([{WRITTEN: 4 * MIB, FLUSHED: rewritten, COMPACTED: 0}])
    keys = [{name: batch[name] for name in BATCH_KEY} for batch in batches]
    update_ops(lake, "batches", BATCH_KEY, [key | {"state_metrics": metrics} for key in keys])


def test_a_setting_that_made_a_run_worse_is_rolled_back(spark, lake):
    commits = rows(3)
    stream = replace(STREAM, limits=Limits(rss_bytes=None))
    drained(spark, lake, stream, FOLD, commits[:2], runs=2)
    before = active_profile(lake, stream)
    measure(lake, before.number, rewritten=16 * MIB)
    proposed = tune_rocksdb(lake, stream)
    assert (proposed.kind, proposed.profile.number) == ("proposed", before.number + 1)
    assert proposed.profile.memory_mb > before.memory_mb
    drained(spark, lake, stream, FOLD, commits[2:], runs=1)
    measure(lake, proposed.profile.number, rewritten=20 * MIB)
    outcome = tune_rocksdb(lake, stream)
    assert outcome.kind == "rolled_back"
    assert active_profile(lake, stream) == before
    told = f"the next run has profile {before.number} (default): {MAX_MEMORY_MB} {before.memory_mb}"
    assert told in format_outcome(outcome)
    assert [found.finding for found in trial_findings(outcome)] == ["trial_rolled_back"]
    recorded = read_ops(lake, "rocksdb_profiles", {"profile": proposed.profile.number}).to_pylist()
    assert [row["verdict"] for row in recorded] == ["rolled_back"]
