"""Restate a complete interval of a stream from a savepoint, with all late rows: a backfill.

    spark-submit spark_jobs/restate_interval.py --stream device_signals --lake /data/lake
        --from 2026-01-05 --until 2026-01-06

The rows of the table that were emitted within the interval are replaced in one commit; the live
checkpoint is not touched. The result depends on bronze alone: intervals can be repeated, in any order.
"""

import logging
from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from include.fold.admission import parse_instant
from include.job import PATIENCE, RunRecord, job_parser, recorded_run
from include.lake.dead_letters import put_back_dead_letters
from include.lake.lease import hold_lease
from include.lake.paths import Lake
from include.settings import Stream, is_approval_needed
from include.stream.approvals import refuse_unapproved
from include.stream.open_stream import OpenStream, open_stream
from include.stream.restate_plan import plan_restate
from include.stream.status_report import status_of
from include.stream.stream_status import stream_status
from spark_jobs.engines.live_batch import DataChecks
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import exit_with_main, stream_job
from spark_jobs.replay_bronze import commit_replay, plan_with_sound_start
from spark_jobs.write_savepoint import delete_expired

JOB = "restate_interval"

log = logging.getLogger("job.restate")


def restate(
    engine: SparkEngine,
    lake: Lake,
    stream: Stream,
    start: datetime,
    until: datetime,
    dag_run_id: str | None = None,
) -> None:
    """Restate `[start, until)` of `stream`, and record it in `ops/runs`.

    Raises SettingsError when the live stream is not complete until there.
    """
    with hold_lease(lake, f"stream-{stream.name}", PATIENCE):
        opened = open_stream(lake, stream)
        opened.refuse_run()
        with recorded_run(lake, JOB, stream.name, dag_run_id=dag_run_id) as record:
            _restate_and_record(engine, opened, start=start, until=until, record=record)


def _restate_and_record(
    engine: SparkEngine, opened: OpenStream, start: datetime, until: datetime, record: RunRecord
) -> None:
    lake, stream = opened.lake, opened.declared
    put_back_dead_letters(lake, stream.name, opened.trusted().dead_letters)
    planned = partial(plan_restate, opened, start, until)
    plan = plan_with_sound_start(lake, record["run_id"], planned)
    log.info("%s", plan.text())
    again = f"./stateful restate {stream.name} {start.isoformat()} {until.isoformat()}"
    checks = DataChecks(lake, stream, record, then=again)
    what = f"the interval from {start:%F %R} until {until:%F %R} UTC"
    commit_replay(engine, plan, checks, record, what)
    record["estimated_seconds"] = plan.estimated_seconds
    delete_expired(opened)
    log.info("%s", status_of(stream_status(lake, stream))[0])


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    parser = job_parser(__doc__, "stream")
    parser.add_argument("--from", dest="start", required=True, help="first instant (UTC)")
    parser.add_argument("--until", required=True, help="the instant it ends before (UTC)")
    return parser.parse_args(argv)


def main() -> None:
    args = parse_args()
    start, until = parse_instant("--from", args.start), parse_instant("--until", args.until)
    with stream_job(JOB, args) as (spark, lake, stream):
        if is_approval_needed():
            refuse_unapproved(open_stream(lake, stream), is_run=False)
        engine = SparkEngine(spark)
        restate(engine, lake, stream, start=start, until=until, dag_run_id=args.dag_run_id)


if __name__ == "__main__":
    exit_with_main(main)
