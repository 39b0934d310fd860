"""Real jobs, really killed: wherever it happens, the next run ends with the right table."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.lake.lease import wait_until
from include.lake.ops import read_ops
from include.registry import stream_named
from include.spark.submit import job_environment, submit_command
from include.streams import user_counts
from tests.bronze import append_commit, stamp
from tests.engines.live_lakes import expected_rows, local_run, make_commits, table_rows, user_event

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.turn(0)]

STREAM = stream_named("user_counts")
DEADLINE_S = 120


def start(lake) -> subprocess.Popen[bytes]:
    args = ["--stream", STREAM.name, "--lake", lake.root]
    command = submit_command("run_stream", args, STREAM)
    return subprocess.Popen(command, env=os.environ | job_environment(), start_new_session=True)


@pytest.mark.parametrize(
    "appears",
    [
        pytest.param("checkpoints/user_counts/1/offsets/0", marks=pytest.mark.full),
        pytest.param("tables/user_counts/_delta_log/00000000000000000001.json"),
        pytest.param("ops/batches/_delta_log/00000000000000000001.json", marks=pytest.mark.full),
    ],
)
def test_a_job_killed_when_a_file_appears_is_finished_by_the_next(lake, appears):
    stamped = stamp(make_commits(user_event, seed=8, commits=3))
    for rows in stamped:
        append_commit(lake, STREAM.source, user_counts.FOLD, rows)

    killed = start(lake)
    try:
        assert wait_until((Path(lake.root) / appears).exists, DEADLINE_S, interval=0.002)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    assert start(lake).wait() == 0

    oracle = local_run(user_counts.FOLD, stamped)
    assert table_rows(lake, STREAM, user_counts.FOLD) == expected_rows(oracle, user_counts.FOLD)
    writing = [row for row in read_ops(lake, "batches").to_pylist() if row["rows_out"]]
    history = DeltaTable(lake.table(STREAM.name)).history()
    assert [commit["operation"] for commit in history].count("MERGE") == len(writing)
