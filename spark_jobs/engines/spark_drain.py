"""One availableNow run of a live query on Spark."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from include.landing.late_fields import late_fields_of
from spark_jobs.engines.engine import LiveQuery, WriteBatch
from spark_jobs.engines.folded_batch import FoldedFrame, fetch
from spark_jobs.engines.late_columns import fill_late_fields
from spark_jobs.engines.live import Pack, live_fold
from spark_jobs.engines.packed_files import pack_files, workers_can_read
from spark_jobs.engines.packing import pack_events
from spark_jobs.engines.session_settings import session_settings

# A batch must not cut a bronze commit, and Delta's default limit of 1,000 files could.
NO_FILE_LIMIT = str(2**31 - 1)
ONE_FILE = "1"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def run_query(spark: SparkSession, query: LiveQuery, write: WriteBatch) -> list[dict[str, Any]]:
    """Run the query to its end; what Spark measured of each batch, as ops/batches names it.

    StreamingQueryException when a batch fails.
    """
    partitions = {SHUFFLE_PARTITIONS: str(query.stream.state_partitions)}

    def write_folded(folded: DataFrame, batch_id: int) -> None:
        fetched = fetch(folded, query.fold, query.stream.buckets) if query.is_small else None
        if fetched is not None:
            write(fetched, batch_id)
            return
        # Once, and before the first write. Without it the operator would run once per write;
        # and a repeated batch, whose writes are all skipped, would run it never, so that its
        # state is not committed and Spark refuses the batch for ever.
        folded.persist()
        try:
            write(FoldedFrame(folded, query.fold), batch_id)
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
    """What the stream folds of its bronze, batch by batch."""
    stream = query.stream
    files_per_batch = ONE_FILE if query.compacting else NO_FILE_LIMIT
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", files_per_batch)
    if query.first_version is not None:
        reader = reader.option("startingVersion", str(query.first_version))
    bronze = query.lake.bronze(stream.source)
    rows, late = reader.load(bronze), late_fields_of(bronze, query.fold)
    pack: Pack = partial(pack_files, late=late)
    if not workers_can_read(bronze):
        rows, pack = fill_late_fields(rows, late), pack_events
    return live_fold(
        rows,
        query.fold,
        stream.buckets,
        stream.state_partitions,
        stream.watermark_delay,
        query.seed,
        pack=pack,
    )


def measured(progress: Sequence[StreamingQueryProgress]) -> list[dict[str, Any]]:
    """The batches of a query's progress, as rows of `ops/batches`."""
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
