"""Show what a stream's state holds: keys, their bytes and ages, timeouts, skew, what waits.

    spark-submit spark_jobs/inspect_state.py --stream user_counts --lake /data/lake [--json]

It reads the state after the newest committed batch and writes nothing, so it may run beside
a run of the stream.
"""

import pickle
import sys
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from include.care.state_report import (
    BucketState,
    StateReport,
    format_report,
    measure_bucket,
    report_json,
    report_of,
)
from include.checkpoint.committed_batch import CommittedBatch, check_partitions, committed_batch
from include.coverage.pin_generation import refuse_other_state
from include.fold.admission import US_PER_MS, until_us
from include.fold.definition import KeyedFold
from include.job import cause_of, job_parser
from include.lake.generations import read_generations
from include.lake.paths import Lake, LakeError, open_lake
from include.registry import stream_named
from include.settings import Stream
from include.stream_definition import load_definition, pinned_settings
from include.text_table import printable
from spark_jobs.engines.checkpointed_states import read_states, read_waiting
from spark_jobs.job import exit_with_main, spark_session

JOB = "inspect_state"


def inspect_state(spark: SparkSession, lake: Lake, stream: Stream) -> StateReport:
    """The state of `stream` after its newest committed batch.

    Raises LakeError when there is none, or when it cannot be read; SettingsError when the
    stream's file has another state than it was made with.
    """
    generations = read_generations(lake, stream.name)
    batch = committed_batch(lake, generations)
    fold = load_definition(stream).fold
    pinned = generations.pinned()
    refuse_other_state(pinned, pinned_settings(stream, fold)["state_schema"])
    shape = (pinned["buckets"], pinned["state_partitions"])
    check_partitions(lake, batch, shape[1])
    try:
        measured = measure_states(spark, fold, batch)
        waiting = _waiting_events(spark, batch)
    except (PySparkException, Py4JJavaError) as error:
        raise LakeError(
            # Spark's own advice is a new checkpoint, which would be a new state.
            f"the state of {stream.name} after batch {batch.batch_id} in {batch.checkpoint} cannot be "
            "read. If a run has come further meanwhile, try again; if files are missing, put them back "
            f"from a copy, and change nothing else. Spark says: {cause_of(error)}",
            code="unreadable_checkpoint",
            subject=f"checkpoints/{stream.name}",
        ) from error
    return report_of(stream.name, fold, batch, shape=shape, measured=measured, waiting=waiting)


def measure_states(
    spark: SparkSession, fold: KeyedFold, batch: CommittedBatch
) -> list[BucketState]:
    """What the states after `batch` come to, of each bucket that has any."""
    states = read_states(spark, batch.checkpoint, fold, batch_id=batch.batch_id)
    next_ms = batch.next_watermark_ms
    due_until_us = None if next_ms is None else until_us(next_ms * US_PER_MS)

    def measure(rows: pa.Table) -> pa.Table:
        return pa.table({"measured": [pickle.dumps(measure_bucket(rows, due_until_us))]})

    measured = states.groupBy("bucket").applyInArrow(measure, "measured binary")
    return [pickle.loads(row["measured"]) for row in measured.collect()]  # noqa: S301 (of our workers)


def _waiting_events(spark: SparkSession, batch: CommittedBatch) -> dict[int, tuple[int, int]]:
    """How many events wait in each bucket that was ever touched, and in how many bytes."""
    waiting = read_waiting(spark, batch.checkpoint, batch.batch_id)
    size = F.coalesce(F.octet_length("events"), F.lit(0))
    rows = waiting.select("bucket", "waiting", size)
    return {bucket: (events, size) for bucket, events, size in rows.collect()}


def main() -> None:
    parser = job_parser(__doc__, "stream")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of tables")
    parser.add_argument("--output", type=Path, help="a file for the report, in place of stdout")
    args = parser.parse_args()
    stream, lake = stream_named(args.stream), open_lake(args.lake)
    spark = spark_session(f"{JOB}-{stream.name}", lake)
    # What goes wrong is said in one line; Spark logs it as well, in some hundred.
    spark.sparkContext.setLogLevel("OFF")
    report = inspect_state(spark, lake, stream)
    text = report_json(report) if args.json else format_report(report)
    if args.output is None:
        sys.stdout.write(printable(f"{text}\n"))
    else:
        args.output.write_text(text)


if __name__ == "__main__":
    exit_with_main(main)
