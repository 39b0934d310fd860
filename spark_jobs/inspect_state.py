"""Show a stream's state: keys, their bytes and ages, timeouts, skew, waiting events.

    spark-submit spark_jobs/inspect_state.py --stream user_counts --lake /data/lake [--json]

It reads the state after the newest committed batch: it may run beside a run of the stream.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

from include.fold.admission import US_PER_MS, until_us
from include.fold.definition import SEEN, KeyedFold, state_rows_ddl
from include.fold.group_state import TIMERS
from include.job import cause_of, job_parser
from include.lake.errors import LakeError
from include.lake.generations import read_generations
from include.lake.paths import Lake, open_lake
from include.observe.state_report import (
    BIGGEST_KEYS,
    RANKS,
    SPREAD,
    Row,
    StateReport,
    biggest_keys,
    format_report,
    report_json,
    report_of,
    timer_column,
    value_bytes,
)
from include.registry import stream_named
from include.settings import Stream
from include.stream.checkpoint import CommittedBatch, check_partitions, committed_batch
from include.stream.record import refuse_other_settings
from include.stream_definition import load_definition
from include.text_table import printable
from spark_jobs.engines.state_rows import read_states, read_waiting
from spark_jobs.job import exit_with_main, spark_session

JOB = "inspect_state"


def inspect_state(spark: SparkSession, lake: Lake, stream: Stream) -> StateReport:
    """Return the report on the state of `stream` after its newest committed batch."""
    generations, fold = read_generations(lake, stream.name), load_definition(stream).fold
    batch, pinned = committed_batch(lake, generations), generations.pinned()
    refuse_other_settings(pinned, {"state_schema": state_rows_ddl(fold)})
    shape = (pinned["buckets"], pinned["state_partitions"])
    check_partitions(lake, batch, shape[1])
    try:
        states = read_states(spark, batch.checkpoint, fold, batch_id=batch.batch_id)
        measured = measure_states(states, fold, batch)
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
    states: DataFrame, fold: KeyedFold, batch: CommittedBatch
) -> dict[int | None, Row]:
    """The figures of state rows (`state_rows_ddl`) by bucket; under None those of all rows, if any."""
    size = arrow_udf(_bytes, "bigint", ArrowUDFType.SCALAR)
    sized = states.withColumn("bytes", size(F.struct(*states.columns[1:])))
    figures = sized.rollup("bucket").agg(*_figures(fold, batch)).toArrow()
    measured = {row["bucket"]: row for row in figures.drop_columns(["biggest"]).to_pylist()}
    of_all = figures.filter(pc.is_null(figures["bucket"]))
    if of_all.num_rows:
        measured[None]["biggest"] = _biggest(of_all["biggest"].combine_chunks().flatten())
    return measured


def _bytes(rows: pa.Array) -> pa.Array:
    return pa.array(value_bytes(rows))


def _biggest(keys: pa.StructArray) -> list[Row]:
    rows = pa.Table.from_struct_array(keys)
    shown = biggest_keys(rows, rows["bytes"].to_numpy())
    buckets = rows["bucket"].to_pylist()
    return [row | {"bucket": bucket} for row, bucket in zip(shown, buckets, strict=True)]


def _figures(fold: KeyedFold, batch: CommittedBatch) -> Iterator[Column]:
    changed_us, timeout_us = F.col("changed_at_us"), F.col("timeout_at_us")
    shares = list(SPREAD.values())
    complete_us = None if batch.watermark_ms is None else batch.watermark_ms * US_PER_MS
    next_ms = batch.next_watermark_ms
    due_us = None if next_ms is None else until_us(next_ms * US_PER_MS)
    yield F.count("*").alias("keys")
    yield F.sum("bytes").alias("bytes")
    yield F.percentile_approx("bytes", shares, RANKS).alias("sizes")
    yield F.count(changed_us).alias("states")
    age_us = F.lit(complete_us).cast("bigint") - changed_us
    yield F.percentile_approx(age_us, shares, RANKS).alias("ages_us")
    yield F.count(timeout_us).alias("timeouts")
    yield F.count_if(timeout_us < F.lit(due_us).cast("bigint")).alias("due")
    yield F.min(timeout_us).alias("first_timeout_us")
    yield F.max(timeout_us).alias("last_timeout_us")
    shown = F.struct("bucket", "key", "bytes", "changed_at_us", "timeout_at_us", "state")
    by_size = F.struct(-F.col("bytes"), "key")  # so that the same state gives the same answer
    yield F.min_by(shown, by_size, BIGGEST_KEYS).alias("biggest")
    if fold.deduplicate:
        yield F.coalesce(F.sum(F.array_size(SEEN)), F.lit(0)).alias("seen")
    for name in fold.timers:
        yield F.count(F.col(TIMERS)[name]).alias(timer_column(name))


def _waiting_events(spark: SparkSession, batch: CommittedBatch) -> dict[int, tuple[int, int]]:
    """The number and the bytes of waiting events in each bucket that was ever touched."""
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
    spark = spark_session(f"{JOB}-{stream.name}")
    # An error is one line; Spark would log some hundred more.
    spark.sparkContext.setLogLevel("OFF")
    report = inspect_state(spark, lake, stream)
    text = report_json(report) if args.json else format_report(report)
    if args.output is None:
        sys.stdout.write(printable(f"{text}\n"))
    else:
        args.output.write_text(text)


if __name__ == "__main__":
    exit_with_main(main)
