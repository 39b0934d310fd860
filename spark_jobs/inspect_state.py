"""Show what a stream's state holds: keys, their bytes and ages, timeouts, skew, what waits.

    spark-submit spark_jobs/inspect_state.py --stream user_counts --lake /data/lake [--json]

It reads the state after the newest committed batch and writes nothing, so it may run beside
a run of the stream.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from include.care.state_figures import StateReport, Timeouts, skew_of
from include.care.state_report import format_report, report_json
from include.checkpoint.committed_batch import CommittedBatch, check_partitions, committed_batch
from include.checkpoint.offsets import newest_committed
from include.fold.admission import US_PER_MS, until_us
from include.fold.definition import KeyedFold
from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.lake.paths import Lake, LakeError, open_lake
from include.registry import stream_named
from include.settings import SettingsError, Stream
from include.stream_definition import load_definition, pinned_settings
from spark_jobs.engines.state_report import (
    Clock,
    StateFigures,
    instant,
    measure_state,
    sum_partitions,
)
from spark_jobs.job import exit_with_main, job_parser, spark_session

JOB = "inspect_state"


def inspect_state(spark: SparkSession, lake: Lake, stream: Stream) -> StateReport:
    """The state of `stream` after its newest committed batch.

    Raises LakeError when there is none, or when it cannot be read; SettingsError when the
    stream's file has another state than it was made with.
    """
    batch = committed_batch(lake, read_generations(lake, stream.name))
    fold = load_definition(stream).fold
    pinned = _made_with(lake, stream, batch.generation)
    _check_state_type(stream, fold, pinned)
    clock = Clock(_micros(batch.watermark_ms), _micros(batch.next_watermark_ms))
    shape = (pinned["buckets"], pinned["state_partitions"])
    check_partitions(lake, batch, shape[1])
    try:
        figures = measure_state(spark, batch.checkpoint, fold, batch.batch_id, clock, shape)
    except (PySparkException, Py4JJavaError) as error:
        raise LakeError(_why_unreadable(lake, stream, batch, error)) from error
    return _report(stream, fold, batch, figures, shape[1])


def _made_with(lake: Lake, stream: Stream, generation: int) -> dict[str, Any]:
    where = {"stream": stream.name, "generation": generation}
    rows = read_ops(lake, "generations", where).to_pylist()
    if len(rows) != 1:
        raise LakeError(
            f"{lake.ops('generations')} has {len(rows)} rows of stream {stream.name}, generation "
            f"{generation}, and must have one, which says what the state was made with: put the "
            "table back from a copy"
        )
    return dict(rows[0])


def _check_state_type(stream: Stream, fold: KeyedFold, pinned: dict[str, Any]) -> None:
    now = pinned_settings(stream, fold)["state_schema"]
    if now != pinned["state_schema"]:
        raise SettingsError(
            f"stream {stream.name}: its file has the state ({now}) now, but the checkpoint's was "
            f"made with ({pinned['state_schema']}): put the file back to read it"
        )


def _why_unreadable(
    lake: Lake, stream: Stream, batch: CommittedBatch, error: PySparkException | Py4JJavaError
) -> str:
    read = f"the state of {stream.name} after batch {batch.batch_id}"
    newest = newest_committed(lake, batch.checkpoint)
    if newest != batch.batch_id:
        return (
            f"{read} was deleted while it was read: a run has come to batch {newest} meanwhile. "
            "Try again"
        )
    # Spark's own advice is a new checkpoint, which would be a new state.
    return (
        f"{read} in {batch.checkpoint} cannot be read. If files are missing, put them back from a "
        f"copy, and change nothing else. Spark says: {_first_line(error)}"
    )


def _first_line(error: PySparkException | Py4JJavaError) -> str:
    # What Spark has no Python exception for comes with its Java trace as its text.
    message = getattr(error, "java_exception", None)
    text = str(error) if message is None else str(message.getMessage())
    return text.splitlines()[0]


def _report(
    stream: Stream,
    fold: KeyedFold,
    batch: CommittedBatch,
    figures: StateFigures,
    partitions: int,
) -> StateReport:
    totals, buckets = figures.totals, figures.buckets
    parts = sum_partitions(buckets, partitions)
    settled_us = _micros(batch.watermark_ms)
    return StateReport(
        stream=stream.name,
        generation=batch.generation,
        batch_id=batch.batch_id,
        checkpoint=batch.checkpoint,
        clock="ingestion time" if fold.in_processing_time else "event time",
        until=None if settled_us is None else instant(until_us(settled_us)),
        key=fold.key,
        keys=totals.keys,
        keys_without_state=totals.keys_without_state,
        bytes=totals.bytes,
        pending_events=sum(bucket.pending_events for bucket in buckets),
        pending_bytes=sum(bucket.pending_bytes for bucket in buckets),
        bytes_per_key=totals.bytes_per_key,
        age_us=totals.age_us,
        timeouts=Timeouts(
            kind=fold.timeout,
            keys_with=totals.keys_with_timeout,
            keys_without=totals.keys - totals.keys_with_timeout,
            due=totals.due,
            next_at=instant(totals.next_timeout_us),
            last_at=instant(totals.last_timeout_us),
        ),
        biggest_keys=figures.biggest,
        partitions=parts,
        partition_skew=skew_of(parts),
        buckets=buckets,
        bucket_skew=skew_of(buckets),
    )


def _micros(ms: int | None) -> int | None:
    return None if ms is None else ms * US_PER_MS


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    parser = job_parser(__doc__, "stream")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of tables")
    parser.add_argument("--output", type=Path, help="a file for the report, in place of stdout")
    return parser.parse_args(argv)


def main() -> None:
    args = parse_args()
    stream, lake = stream_named(args.stream), open_lake(args.lake)
    spark = spark_session(f"{JOB}-{stream.name}", lake)
    # What goes wrong is said in one line; Spark logs it as well, in some hundred.
    spark.sparkContext.setLogLevel("OFF")
    report = inspect_state(spark, lake, stream)
    text = report_json(report) if args.json else format_report(report)
    if args.output is None:
        sys.stdout.write(f"{text}\n")
    else:
        args.output.write_text(text)


if __name__ == "__main__":
    exit_with_main(main)
