"""Set a source's watermark back, and rebuild its streams to what is complete by it then.

    spark-submit spark_jobs/set_watermark.py --source signals --lake /data/lake
        [--to 2026-01-05T10:00:00Z]

From the note in the ingest log on, ingestion and the source's streams refuse to run; ingestion runs
again from the commit on that sets the watermark back, and each stream once it is rebuilt. Killed
anywhere and started again without --to, the job goes on where it was.
"""

import logging
from datetime import UTC, datetime
from functools import partial

from include.amend.plans import plan_set_watermark
from include.fold.admission import micros_of, parse_instant
from include.ingest.amendments import amended_streams, amendments_of, begin_set_watermark, note_done
from include.ingest.ingest import write_set_watermark
from include.ingest.ingest_log import refuse_changed_bronze
from include.job import PATIENCE, job_parser, nothing_running, recorded_run
from include.lake.generations import read_generations
from include.lake.lease import hold_lease
from include.lake.paths import Lake, open_lake
from include.registry import source_named, streams_of
from include.settings import Source, Stream
from include.stream.manifest import keep_savepoints, savepoints_of
from include.stream.rebuild_plan import RebuildOptions
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import exit_with_main, spark_session
from spark_jobs.rebuild_downstream import recreate_behind, waits_for_parent
from spark_jobs.rebuild_stream import rebuild_amended

JOB = "set_watermark"

log = logging.getLogger("job.set_watermark")


def set_watermark(engine: SparkEngine, lake: Lake, source: Source, to: datetime | None) -> None:
    """Set the source watermark back to `to`, or finish what was begun (`to` None, or the same instant)."""
    name = source.name
    with hold_lease(lake, f"set-watermark-{name}", PATIENCE), recorded_run(lake, JOB, name, None):
        # Not under a run that began before its intent.
        with nothing_running(lake, [name], streams_of(name)):
            _set_back(lake, source, to)
        amendment = amendments_of(lake, name).open
        assert amendment is not None  # only this finishes it
        rebuild_amended(engine, lake, amendment, RebuildOptions())
        then, waits = str(amendment.unfinished(name).command), partial(waits_for_parent, lake)
        recreate_behind(engine, lake, name, then, waits)
        with nothing_running(lake, [name], streams_of(name)):
            for stream, _ in amended_streams(lake, name):
                _delete_savepoints_ahead(lake, stream)
            note_done(lake, source, amendment)
        log.info("the watermark of %s is set back", name)


def _set_back(lake: Lake, source: Source, to: datetime | None) -> None:
    refuse_changed_bronze(lake, source.name, "setting its watermark back")
    plan = plan_set_watermark(lake, source, to)
    log.info("%s", plan.text)
    if plan.begun is None:
        begin_set_watermark(lake, source, plan.to_us)
    # Also where the log has it already: bronze may lack it still.
    write_set_watermark(lake, source, micros_of(datetime.now(UTC)))


def _delete_savepoints_ahead(lake: Lake, stream: Stream) -> None:
    """Delete savepoints of instants that are no longer complete: while there is a newer one none is
    written."""
    row, known = read_generations(lake, stream.name).pinned(), savepoints_of(lake, stream.name)
    until_us, seed = row["until_us"], row["seed_savepoint"]
    retained = [each for each in known if each.until_us <= until_us or each.savepoint_id == seed]
    keep_savepoints(lake, stream.name, retained)


def main() -> None:
    parser = job_parser(__doc__, "source")
    parser.add_argument("--to", help="what the watermark is set back to (UTC); left out: go on")
    args = parser.parse_args()
    to = None if args.to is None else parse_instant("--to", args.to)
    source, lake = source_named(args.source), open_lake(args.lake)
    engine = SparkEngine(spark_session(f"{JOB}-{source.name}"))
    set_watermark(engine, lake, source, to)


if __name__ == "__main__":
    exit_with_main(main)
