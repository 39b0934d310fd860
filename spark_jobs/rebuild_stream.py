"""Rebuild a stream's state and table from a starting savepoint and bronze, with all late rows.

    spark-submit spark_jobs/rebuild_stream.py --stream user_counts --lake /data/lake
        [--options '{"buckets": 100, "partitions": 7, "until": "2026-01-05", "full_refresh": true}']

The commit that replaces the table's rows is the switch to the new generation: until then readers
see the old table (an empty one where it is lost or cannot be read), and the stream's runs wait.
"""

import json
import logging
from argparse import Namespace
from collections.abc import Sequence

from include.ingest.amendments import Amendment, amended_streams
from include.job import PATIENCE, job_parser, recorded_run
from include.lake.dead_letters import put_back_dead_letters
from include.lake.delta_log import move_aside, why_unreadable
from include.lake.lease import hold_lease
from include.lake.paths import Lake
from include.settings import Stream, is_approval_needed
from include.stream.approvals import refuse_unapproved
from include.stream.open_stream import open_stream
from include.stream.rebuild_plan import RebuildOptions, RebuildPlan, plan_rebuild
from spark_jobs.engines.live_batch import DataChecks
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import exit_with_main, stream_job
from spark_jobs.replay_bronze import commit_replay, plan_with_sound_start
from spark_jobs.write_savepoint import delete_expired

JOB = "rebuild_stream"

log = logging.getLogger("job.rebuild")


def rebuild(
    engine: SparkEngine,
    lake: Lake,
    stream: Stream,
    options: RebuildOptions,
    dag_run_id: str | None = None,
    then: str | None = None,
) -> None:
    """Rebuild `stream` and record it; `then`: the command that repeats the operation around it.

    A kill before the commit leaves table and live state as they were; the next run or rebuild uses
    or puts back what else it has changed: savepoints, dead letters, an unreadable table moved aside.
    """
    with (
        hold_lease(lake, f"stream-{stream.name}", PATIENCE),
        recorded_run(lake, JOB, stream.name, dag_run_id) as record,
    ):
        plan = _planned(lake, stream, options, record["run_id"])
        log.info("%s", plan.text())
        if plan.from_us is None and _move_unreadable(lake, stream.name):
            plan = _planned(lake, stream, options, record["run_id"])
        if plan.opened.mismatch is None:
            put_back_dead_letters(lake, stream.name, plan.opened.record.dead_letters)
        again = then or f"./stateful rebuild {stream.name} --apply"
        checks = DataChecks(lake, stream, record, then=again)
        commit_replay(engine, plan, checks, record, what="the rebuild")
        log.info("%s runs on generation %s from here on", stream.name, plan.row["generation"])
        delete_expired(open_stream(lake, stream))


def rebuild_amended(
    engine: SparkEngine,
    lake: Lake,
    amendment: Amendment,
    options: RebuildOptions,
    then: str | None = None,
) -> None:
    """Rebuild each stream of an amended source that has run, and whose state is older."""
    for stream, row in amended_streams(lake, amendment.source):
        if not amendment.is_known_to(row):
            rebuild(engine, lake, stream, options, then=then)


def _planned(lake: Lake, stream: Stream, options: RebuildOptions, run_id: str) -> RebuildPlan:
    def plan() -> RebuildPlan:
        return plan_rebuild(open_stream(lake, stream), options)

    return plan_with_sound_start(lake, run_id, plan=plan)


def _move_unreadable(lake: Lake, stream: str) -> bool:
    """Move a table aside whose log cannot be read, and so whose rows cannot be replaced."""
    if (why := why_unreadable(lake, lake.table(stream))) is None:
        return False
    target = move_aside(lake, [f"tables/{stream}"])
    log.warning("tables/%s is moved into %s, and rebuilt: %s", stream, target, why)
    return True


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    parser = job_parser(__doc__, "stream")
    parser.add_argument("--options", default="{}", help="as JSON; left out: all as it is now")
    return parser.parse_args(argv)


def main() -> None:
    args = parse_args()
    with stream_job(JOB, args) as (spark, lake, stream):
        if is_approval_needed():  # an amendment does not wait
            refuse_unapproved(open_stream(lake, stream), is_run=False)
        options = RebuildOptions.of(json.loads(args.options))
        rebuild(SparkEngine(spark), lake, stream, options, args.dag_run_id)


if __name__ == "__main__":
    exit_with_main(main)
