"""The live engine: the fold over checkpointed RocksDB state, one bucket per Spark key, drained once.

A small batch is fetched as Arrow and written by delta-rs: no second job, no cache and none of
Spark's writers, each of which costs seconds in a JVM that has just begun.
"""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress

from include.fold.admission import MICROSECOND, US_PER_MS
from include.fold.arrow_values import DEAD_LETTERS, output_schema
from include.fold.definition import DEAD_LETTERS_DDL, KeyedFold, output_ddl
from include.fold.keys import bucket_ids
from include.ingest.bronze_tables import LateField, late_fields_of
from include.settings import MIB
from spark_jobs.engines.bucket_processor import FOLDED_DDL
from spark_jobs.engines.deferred_processor import DeferredProcessor
from spark_jobs.engines.engine import FoldedBatch, LiveQuery, Seed, WriteBatch
from spark_jobs.engines.live_batch import SUMMED
from spark_jobs.engines.packed_files import BronzeEvents, pack_files
from spark_jobs.engines.packing import Admission, from_stream, unpack
from spark_jobs.engines.state_rows import group_states
from spark_jobs.tables.product import session_settings

# Of what a batch may send to the driver, outputs and dead letters each.
FETCHED_BYTES = 64 * MIB
STREAMS = ("outputs", "dead_letters")  # columns with an Arrow stream in each row


def counts_of(folded: pa.Table) -> dict[str, Any]:
    """Return the counts of rows of FOLDED_DDL, whose streams may be replaced by anything."""
    return {name: pc.sum(folded[name]).as_py() or 0 for name in SUMMED} | {
        "late_first_us": pc.min(folded["late_first_us"]).as_py(),
        "late_last_us": pc.max(folded["late_last_us"]).as_py(),
        "buckets_touched": folded.num_rows,
        "watermark_us": pc.max(folded["watermark_us"]).as_py(),
        "buckets_with_dead_letters": pc.count(folded["dead_letters"]).as_py(),
        "rows_in_most": pc.max(folded["rows_in"]).as_py(),
    }


def left_on_spark(folded: DataFrame, fold: KeyedFold) -> FoldedBatch:
    """Return the batch of a frame of FOLDED_DDL that is persisted, so that reading it folds nothing again."""
    is_there = {name: F.when(F.col(name).isNotNull(), F.lit(True)) for name in STREAMS}
    counts = counts_of(folded.withColumns(is_there).toArrow())
    emitted = unpack(folded, "outputs", output_ddl(fold))
    return FoldedBatch(
        counts, emitted, dead_letters=unpack(folded, "dead_letters", DEAD_LETTERS_DDL)
    )


def fetch(folded: DataFrame, fold: KeyedFold, buckets: int) -> FoldedBatch | None:
    """Run the batch and fetch it; None when a bucket has too much to fetch: it is then run once more."""
    most = FETCHED_BYTES // buckets
    shortened = {name: F.when(_size(name) <= most, F.col(name)) for name in STREAMS}
    sizes = {f"{name}_bytes": _size(name) for name in STREAMS}
    table = folded.select(
        *(shortened.get(name, F.col(name)).alias(name) for name in folded.columns),
        *(size.alias(name) for name, size in sizes.items()),
    ).toArrow()
    if any((pc.max(table[name]).as_py() or 0) > most for name in sizes):
        return None
    emitted = _rows_in(table["outputs"], output_schema(fold))
    return FoldedBatch(
        counts_of(table), emitted, dead_letters=_rows_in(table["dead_letters"], DEAD_LETTERS)
    )


def _rows_in(streams: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    tables = map(from_stream, streams.drop_null().to_pylist())
    return pa.concat_tables([schema.empty_table(), *tables])


def _size(column: str) -> Any:
    return F.octet_length(F.col(column))


def live_fold(
    bronze: DataFrame,
    fold: KeyedFold,
    buckets: int,
    partitions: int,
    watermark_delay: timedelta,
    seed: Seed | None = None,
    late: Sequence[LateField] = (),
) -> DataFrame:
    """Return the fold of the streaming frame `bronze`, batch by batch: FOLDED_DDL, one row per bucket and call.

    `outputs` and `dead_letters` are Arrow streams, null without any. `late`: columns that older files have
    elsewhere.
    """
    delay_us = watermark_delay // MICROSECOND
    since_us = None if seed is None else seed.as_of_us
    ids = bucket_ids(buckets, partitions)
    initial = None
    if seed is not None and seed.states is not None:
        initial = _seed_rows(seed.states, seed.waiting, fold, ids=ids).groupBy("bucket")
    # The watermark is on a copy, which is dropped: Spark's late filter drops no row.
    packed = (
        pack_files(bronze, fold, ids, Admission(delay_us, since_us), late)
        .withColumn("fold_clock", F.timestamp_micros("commit_us"))
        .withWatermark("fold_clock", f"{delay_us // US_PER_MS} milliseconds")
        .drop("fold_clock")
    )
    # Not in pandas, which costs a bucket a millisecond more.
    return packed.groupBy("bucket").transformWithState(
        DeferredProcessor(fold, delay_us, since_us),
        outputStructType=FOLDED_DDL,
        outputMode="Append",
        timeMode="EventTime",
        initialState=initial,
    )


def _seed_rows(
    states: DataFrame, waiting: BronzeEvents | None, fold: KeyedFold, ids: Sequence[int]
) -> DataFrame:
    """Return what buckets begin with: rows of `bucket, states, events`, either of which is null."""
    nothing = F.lit(None).cast("binary")
    rows = group_states(states, fold, ids).select("bucket", "states", nothing.alias("events"))
    if waiting is None:
        return rows
    packed = waiting.pack(fold, ids)
    return rows.union(packed.select("bucket", nothing.alias("states"), "events"))


def run_query(spark: SparkSession, query: LiveQuery, write: WriteBatch) -> list[dict[str, Any]]:
    """Run the query to its end; return Spark's measurements of each batch, as ops/batches names them."""
    partitions = {"spark.sql.shuffle.partitions": str(query.stream.state_partitions)}

    def write_folded(folded: DataFrame, batch_id: int) -> None:
        fetched = fetch(folded, query.fold, query.stream.buckets) if query.is_small else None
        if fetched is not None:
            write(fetched, batch_id)
            return
        # Or the operator would run once per write; and for a repeated batch, whose writes are all skipped,
        # never: its state would not be committed, and Spark would refuse the batch for ever.
        folded.persist()
        try:
            write(left_on_spark(folded, query.fold), batch_id)
        finally:
            folded.unpersist()

    with session_settings(spark, {**query.settings, **partitions}):
        running = (
            plan_fold(spark, query)
            .writeStream.queryName(query.stream.name)
            .foreachBatch(write_folded)
            .option("checkpointLocation", query.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        running.awaitTermination()
        return measured(running.recentProgress)


def plan_fold(spark: SparkSession, query: LiveQuery) -> DataFrame:
    """Return the fold of the stream's bronze, batch by batch."""
    stream, bronze = query.stream, query.lake.bronze(query.stream.source)
    # A batch must not cut a bronze commit, and Delta's default limit of 1,000 files could.
    most = "1" if query.compacting else str(2**31 - 1)
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", most)
    if query.first_version is not None:
        reader = reader.option("startingVersion", str(query.first_version))
    return live_fold(
        reader.load(bronze),
        query.fold,
        stream.buckets,
        partitions=stream.state_partitions,
        watermark_delay=stream.watermark_delay,
        seed=query.seed,
        late=late_fields_of(bronze, query.fold),
    )


def measured(progress: Sequence[StreamingQueryProgress]) -> list[dict[str, Any]]:
    """Return the batches of a query's progress, as rows of `ops/batches`."""
    return [
        {
            "batch_id": batch.batchId,
            "state_bytes": sum(state.memoryUsedBytes for state in batch.stateOperators),
            "durations_ms": json.dumps(dict(batch.durationMs)),
            "state_metrics": json.dumps([dict(s.customMetrics) for s in batch.stateOperators]),
        }
        for batch in progress
        if batch.stateOperators  # a progress without an operator is of no batch
    ]
