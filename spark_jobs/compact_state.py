"""Compact a stream's state: upload snapshots, delete old versions, run RocksDB's compaction.

    spark-submit spark_jobs/compact_state.py --stream user_counts --lake /data/lake

Two batches of the stream itself, under settings that make Spark do its maintenance within
them; each is forced by a clock row in bronze that moves no watermark. So it is a real run: it
can be killed and repeated like any other, and changes no state, which is proved by reading
all of it before and after. Batches before it can no longer be read.

Whether it is worth a run, the caller decides: include/state_care/check_checkpoint.py.
"""

import logging
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from include.findings import record_error
from include.generations import current_generation
from include.lake import Lake, open_lake
from include.lease import hold_lease
from include.state_care.compaction_report import format_compaction
from include.state_care.measure_checkpoint import measure_checkpoint
from include.state_care.recorded_sizes import record_sizes
from include.stream_position import has_waiting_rows, is_settled
from include.streams import Stream, source_named, stream_named
from spark_jobs.engines.state_fingerprint import StateFingerprint, fingerprint_state
from spark_jobs.job import exit_with_main, job_parser, recorded_run, spark_session
from spark_jobs.lake.clock_row import write_still_row
from spark_jobs.run_stream import JOB as RUN_STREAM
from spark_jobs.stream_definition import load_definition
from spark_jobs.stream_drain import INGEST_PATIENCE, drain_stream

JOB = "compact_state"
# One leaves the snapshot of the last compaction, and all change logs since, as the older of
# the two that are retained. After a second one nothing older is needed.
BATCHES = 2

log = logging.getLogger("job.compact")


class StateChangedError(RuntimeError):
    """A compaction must change no state, and has."""


def compact(spark: SparkSession, lake: Lake, stream: Stream, dag_run_id: str | None = None) -> None:
    """Compact the state of `stream` and record the run.

    Raises StateChangedError when the state afterwards is another, LeaseTakenError when a run
    of the stream, or a long one of its source's ingestion, is going on.
    """
    with (
        hold_lease(lake, f"stream-{stream.name}"),
        # What ingest commits meanwhile must not be in our batches.
        hold_lease(lake, f"ingest-{stream.source}", INGEST_PATIENCE),
    ):
        fold_what_waits(spark, lake, stream, dag_run_id)
        with (
            recorded_run(lake, JOB, stream.name, dag_run_id) as record,
            reported_sizes(lake, stream, record["run_id"]),
        ):
            before = _fingerprint(spark, lake, stream)
            for _ in range(BATCHES):
                write_still_row(spark, lake, source_named(stream.source))
            drain_stream(spark, lake, stream, record, compacting=True)
            after = _fingerprint(spark, lake, stream)
            check_unchanged(lake, stream, record["run_id"], before, after)


@contextmanager
def reported_sizes(lake: Lake, stream: Stream, run_id: str) -> Iterator[None]:
    """The checkpoint's sizes before and after the body, into `ops/checkpoint_sizes` and the log."""
    generation = current_generation(lake, stream.name)
    before = measure_checkpoint(lake, stream.name, generation)
    record_sizes(lake, before, run_id, "before_compaction")
    yield
    after = measure_checkpoint(lake, stream.name, generation)
    record_sizes(lake, after, run_id, "after_compaction")
    log.info("%s", format_compaction(before, after))


def fold_what_waits(
    spark: SparkSession, lake: Lake, stream: Stream, dag_run_id: str | None
) -> None:
    """An ordinary run, when there is something to do: the forced batches must find nothing."""
    settled = is_settled(lake, _checkpoint(lake, stream))
    if settled and not has_waiting_rows(lake, stream):
        return
    if not settled:
        write_still_row(spark, lake, source_named(stream.source))
    with recorded_run(lake, RUN_STREAM, stream.name, dag_run_id) as record:
        drain_stream(spark, lake, stream, record)


def check_unchanged(
    lake: Lake, stream: Stream, run_id: str, before: StateFingerprint, after: StateFingerprint
) -> None:
    """Fail the run, with a finding, unless the two fingerprints are equal."""
    if before == after:
        rows = ", ".join(f"{part.rows} {name}" for name, part in after._asdict().items())
        log.info("state read before and after is equal: %s", rows)
        return
    error = StateChangedError(
        f"the state of {stream.name} was {before} before its compaction and is {after} now. Keep "
        "the lake as it is, stop the stream's Dag, and compare the table with bronze"
    )
    record_error(lake, run_id, stream.name, "state_changed", error)
    raise error


def _fingerprint(spark: SparkSession, lake: Lake, stream: Stream) -> StateFingerprint:
    return fingerprint_state(spark, _checkpoint(lake, stream), load_definition(stream).fold)


def _checkpoint(lake: Lake, stream: Stream) -> str:
    return lake.checkpoint(stream.name, current_generation(lake, stream.name))


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    return job_parser(__doc__, "stream").parse_args(argv)


def main() -> None:
    args = parse_args()
    stream, lake = stream_named(args.stream), open_lake(args.lake)
    compact(spark_session(f"{JOB}-{stream.name}", lake), lake, stream, args.dag_run_id)


if __name__ == "__main__":
    exit_with_main(main)
