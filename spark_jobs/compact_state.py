"""Compact a stream's state: upload snapshots, delete old versions, run RocksDB's compaction.

    spark-submit spark_jobs/compact_state.py --stream user_counts --lake /data/lake

Two batches of the stream run with settings that make Spark do its maintenance within them; each is
forced by a row in bronze that moves no watermark. So a compaction can be killed and repeated like
any other run, and changes no state.
"""

from include.fold.definition import state_rows_ddl
from include.ingest.ingest import write_keepalive
from include.job import job_parser, recorded_run
from include.lake.lease import hold_lease
from include.lake.paths import Lake
from include.registry import source_named
from include.settings import Stream
from include.stream.checkpoint import is_complete, newest_begun
from include.stream.open_stream import OpenStream, has_waiting_rows, open_stream
from include.stream.record import refuse_other_settings
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import exit_with_main, stream_job
from spark_jobs.run_stream import INGEST_PATIENCE, drain_stream, refuse_unreadable_events
from spark_jobs.run_stream import JOB as RUN_STREAM

JOB = "compact_state"
# Spark retains two versions: after one batch the older one still needs the former snapshot and all
# change logs since.
BATCHES = 2


def compact(engine: SparkEngine, lake: Lake, stream: Stream, dag_run_id: str | None = None) -> None:
    """Compact the state of `stream` and record the run."""
    with hold_lease(lake, f"stream-{stream.name}"):
        opened = open_stream(lake, stream)
        opened.refuse_run()
        if newest_begun(lake, opened.checkpoint) is None:
            # The first batch of a rebuilt generation needs a row in bronze, under the source's lease.
            opened = _run_stream(engine, opened, dag_run_id)
        _compact(engine, opened, dag_run_id)


def _compact(engine: SparkEngine, opened: OpenStream, dag_run_id: str | None) -> None:
    lake, stream = opened.lake, opened.stream
    opened.refuse_other_checkpoint()
    schema = {"state_schema": state_rows_ddl(opened.fold)}
    refuse_other_settings(opened.generations.pinned(), schema)
    refuse_unreadable_events(opened)
    # Rows that are ingested meanwhile must not be in these batches.
    with hold_lease(lake, f"ingest-{stream.source}", INGEST_PATIENCE):
        opened = fold_what_waits(engine, opened, dag_run_id)
        with recorded_run(lake, JOB, stream.name, dag_run_id=dag_run_id) as run:
            for _ in range(BATCHES):
                write_keepalive(lake, source_named(stream.source))
            drain_stream(engine, opened, run, compacting=True)


def fold_what_waits(engine: SparkEngine, opened: OpenStream, dag_run_id: str | None) -> OpenStream:
    """Run the stream if rows wait: the forced batches must find none."""
    complete = is_complete(opened.lake, opened.checkpoint)
    if complete and not has_waiting_rows(opened.lake, opened.declared):
        return opened
    if not complete:
        write_keepalive(opened.lake, source_named(opened.source))
    return _run_stream(engine, opened, dag_run_id)


def _run_stream(engine: SparkEngine, opened: OpenStream, dag_run_id: str | None) -> OpenStream:
    with recorded_run(opened.lake, RUN_STREAM, opened.name, dag_run_id=dag_run_id) as run:
        return drain_stream(engine, opened, run)


def main() -> None:
    args = job_parser(__doc__, "stream").parse_args()
    with stream_job(JOB, args) as (spark, lake, stream):
        compact(SparkEngine(spark), lake, stream, args.dag_run_id)


if __name__ == "__main__":
    exit_with_main(main)
