"""Spark's jobs with the lake on S3, each a process as a user starts it."""

import os
import subprocess

import pytest

from include.care.check_checkpoint import check_checkpoint
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.registry import stream_named
from include.spark.submit import job_environment, submit_command
from include.streams import user_counts
from tests.bronze import append_commit, stamp
from tests.e2e.object_store import prepared
from tests.engines.live_lakes import expected_rows, local_run, make_commits, table_rows, user_event

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.xdist_group("s3")]

STREAM = stream_named("user_counts")
FOLD = user_counts.FOLD
STAMPED = stamp(make_commits(user_event, seed=8, commits=4))
DEADLINE_S = 300


@pytest.fixture(scope="module", autouse=True)
def _prepared() -> None:
    prepared()


def start(lake: Lake, job: str, *args: str) -> subprocess.Popen[str]:
    given = ["--stream", STREAM.name, "--lake", lake.root, *args]
    return subprocess.Popen(
        submit_command(job, given, STREAM),
        env=os.environ | job_environment() | {"SPARK_LOG_LEVEL": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(lake: Lake, job: str, *args: str) -> str:
    with start(lake, job, *args) as process:
        said = process.communicate(timeout=DEADLINE_S)[0]
    assert process.returncode == 0, said
    return said


def test_a_stream_s_jobs_come_to_the_oracle_s_table(s3_lake):
    for rows in STAMPED[:2]:
        append_commit(s3_lake, STREAM.source, FOLD, rows)
    run(s3_lake, "run_stream")
    for rows in STAMPED[2:]:
        append_commit(s3_lake, STREAM.source, FOLD, rows)
    run(s3_lake, "run_stream")
    oracle = expected_rows(local_run(FOLD, STAMPED), FOLD)
    assert table_rows(s3_lake, STREAM, FOLD) == oracle
    run(s3_lake, "compact_state")
    assert [f for f in check_checkpoint(s3_lake, STREAM).findings if f.severity == "error"] == []
    run(s3_lake, "reseed_stream", "--recompute")
    assert table_rows(s3_lake, STREAM, FOLD).total() == oracle.total()
    outcomes = read_ops(s3_lake, "runs")["outcome"].to_pylist()
    assert set(outcomes) == {"succeeded"}
