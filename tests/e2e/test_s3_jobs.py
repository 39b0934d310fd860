"""Spark's jobs with the lake on S3, each a process as a user starts it."""

import os
import signal as signals
import subprocess

import pytest
from deltalake import DeltaTable
from pyarrow import fs

from include.lake.lease import wait_until
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.maintain.check_checkpoint import check_checkpoint
from include.registry import stream_named
from include.spark.submit import job_environment, submit_command
from include.streams import user_counts
from tests.bronze import append_commit, stamp
from tests.e2e.object_store import prepared, take_away
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
    run(s3_lake, "rebuild_stream", "--options", '{"full_refresh": true}')
    assert table_rows(s3_lake, STREAM, FOLD).total() == oracle.total()
    outcomes = read_ops(s3_lake, "runs")["outcome"].to_pylist()
    assert set(outcomes) == {"succeeded"}


def object_appears(lake: Lake, name: str) -> bool:
    path = lake.path_in_filesystem(f"{lake.root}/{name}")

    def is_there() -> bool:
        return bool(lake.filesystem.get_file_info(path).type == fs.FileType.File)

    return wait_until(is_there, DEADLINE_S, interval=0.02)


@pytest.mark.full
@pytest.mark.parametrize(
    "appears",
    [
        "checkpoints/user_counts/1/offsets/0",
        "tables/user_counts/_delta_log/00000000000000000001.json",
    ],
)
def test_a_stalled_driver_that_lost_its_lease_leaves_the_table_to_the_other(s3_lake, appears):
    for rows in STAMPED:
        append_commit(s3_lake, STREAM.source, FOLD, rows)
    stalled = start(s3_lake, "run_stream")
    try:
        assert object_appears(s3_lake, appears)
        os.killpg(stalled.pid, signals.SIGSTOP)
        take_away(s3_lake, f"stream-{STREAM.name}")
        run(s3_lake, "run_stream")
        os.killpg(stalled.pid, signals.SIGCONT)
        said = stalled.communicate(timeout=DEADLINE_S)[0]
    finally:
        if stalled.poll() is None:
            os.killpg(stalled.pid, signals.SIGKILL)
            stalled.wait()
    assert stalled.returncode == 1, said
    assert "(lease_lost)" in said
    oracle = expected_rows(local_run(FOLD, STAMPED), FOLD)
    assert table_rows(s3_lake, STREAM, FOLD) == oracle
    history = DeltaTable(s3_lake.table(STREAM.name)).history()
    writing = [row for row in read_ops(s3_lake, "batches").to_pylist() if row["rows_out"]]
    assert [commit["operation"] for commit in history].count("MERGE") == len(writing)
    run(s3_lake, "run_stream")
    assert table_rows(s3_lake, STREAM, FOLD) == oracle
