"""Each commit to a stream's table says in the table's log what coverage it brought."""

import json
from typing import Any

import pytest
from deltalake import DeltaTable

from include.fold.admission import micros_of
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.plans.reseed_plan import ReseedOptions
from include.stream_definition import load_definition
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.reseed_stream import reseed
from spark_jobs.tables.product import USER_METADATA
from tests.engines.lake_runs import drained
from tests.late_lakes import commits, small

pytestmark = pytest.mark.spark


def marks(lake: Lake, stream) -> list[dict[str, Any]]:
    """What the commits to the table say, oldest first; all but the one that created it."""
    history = DeltaTable(lake.table(stream.name)).history()
    *written, created = history
    assert created["operation"].startswith("CREATE")
    return [json.loads(commit["userMetadata"])["coverage"] for commit in reversed(written)]


def run_of(lake: Lake, job: str) -> str:
    (run,) = read_ops(lake, "runs", {"job": job}).to_pylist()
    return run["run_id"]


@pytest.mark.e2e
def test_commits_to_an_update_table_are_marked_also_a_merge(spark, lake):
    stream = small("user_counts")
    fold = load_definition(stream).fold
    stamped = commits(seed=32, days=2, source=stream.source, late=4)
    drained(spark, lake, stream, fold, stamped, runs=1)
    live = marks(lake, stream)
    assert {mark["kind"] for mark in live} == {"live"}
    assert spark.conf.get(USER_METADATA, None) is None

    reseed(SparkEngine(spark), lake, stream, ReseedOptions(recompute=True))
    (replaced,) = marks(lake, stream)[len(live) :]
    (row,) = read_ops(lake, "generations", {"generation": 2}).to_pylist()
    assert (replaced["kind"], replaced["generation"]) == ("reseed", 2)
    assert replaced["until_us"] == micros_of(row["until"])
    assert replaced["run_id"] == run_of(lake, "reseed_stream")
