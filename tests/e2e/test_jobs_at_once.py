"""Jobs of one stream in processes of their own, all started at once: they take turns."""

import os
import subprocess

import pytest

from include.lake.paths import Lake
from include.lake.stream_result import replaced_by
from include.registry import stream_named
from include.spark.submit import job_environment, submit_command
from include.stream_definition import load_definition
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from tests.bronze import append_commit
from tests.engines.lake_runs import drained, table_of
from tests.late_lakes import DAYS_US, at, commits, rows_of, truth, until_of

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.full]

SIGNALS = stream_named("device_signals")
DEADLINE_S = 600
TAKEN = "another job works on stream-device_signals"


def started(lake: Lake, job: str, *args: str) -> subprocess.Popen[str]:
    command = submit_command(job, ["--stream", SIGNALS.name, "--lake", lake.root, *args], SIGNALS)
    environment = os.environ | job_environment()
    # The JVM passes on what Python says, all of it as its own stdout.
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def interval(first: int, end: int) -> list[str]:
    return ["--from", at(DAYS_US[first]).isoformat(), "--until", at(DAYS_US[end]).isoformat()]


def test_recomputes_that_overlap_a_reseed_and_a_live_run_at_once_leave_every_row_right(spark, lake):
    fold = load_definition(SIGNALS).fold
    stamped = commits(seed=31, days=4, late=3)
    before, after = stamped[:9], stamped[9:]
    drained(spark, lake, SIGNALS, fold, before, runs=2)
    for rows in after[:1]:
        append_commit(lake, SIGNALS.source, fold, rows)
    running = [
        started(lake, "recompute_interval", *interval(0, 2)),
        started(lake, "recompute_interval", *interval(1, 2)),
        started(lake, "run_stream"),
        started(lake, "reseed_stream"),
    ]
    said = [job.communicate(timeout=DEADLINE_S)[0] for job in running]
    for job, text in zip(running, said, strict=True):
        # The one that lost is told so, and has done nothing.
        assert job.returncode == 0 or (job.returncode == 2 and TAKEN in text), text
    assert [job.returncode for job in running[:2]] == [0, 0]  # those wait for their turn
    assert [r["job"] for r in replaced_by(lake, SIGNALS.name)].count("recompute_interval") == 2

    drain(SparkEngine(spark), lake, SIGNALS)
    seen = [*before, *after[:1]]  # the reseed took in all of it, late rows too
    assert table_of(lake, SIGNALS, fold) == truth(fold, rows_of(seen), until_of(SIGNALS, seen))
