"""The two stateful queries of the demo: Spark's plain operator, and this project's engine."""

import io
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from include.spark.conf import STATE, STATE_STORE
from include.streams.device_signals import FOLD
from spark_jobs.engines.live import live_fold
from spark_jobs.engines.packed_files import pack_files
from spark_jobs.internals.signals import SILENCE, WATERMARK_DELAY

PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
HDFS, ROCKSDB = "HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"
PARTITIONS = 2
BUCKETS = 4
# Few versions make a snapshot, and make it inside the run, so that the demo has some.
SNAPSHOTS = {f"{STATE_STORE}.unloadOnCommit": "true", f"{STATE_STORE}.minDeltasForSnapshot": "2"}
# Jobs leave it off, as it makes a put dearer. Here it is what there is to see.
ROWS_COUNTED = {f"{STATE_STORE}.rocksdb.trackTotalNumberOfRows": "true"}

COUNTED_DDL = "device_id bigint, count bigint, timed_out boolean"
COUNT_STATE_DDL = "count bigint, newest_ms bigint"
SILENCE_MS = int(SILENCE.total_seconds() * 1000)
NS_PER_MS = 1_000_000


@dataclass
class Ran:
    """A query that has ended, and what its batches were."""

    name: str
    checkpoint: str
    outputs: dict[int, list[Row]] = field(default_factory=dict)
    plans: dict[int, str] = field(default_factory=dict)  # as executed
    progress: list[Any] = field(default_factory=list)


def count_signals(
    key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """The device's running count; once more, and for the last time, after its silence."""
    count, newest_ms = state.get if state.exists else (0, 0)
    if state.hasTimedOut:
        state.remove()
    else:
        for frame in frames:
            count += len(frame)
            newest_ms = max(newest_ms, int(frame["event_time"].max().value) // NS_PER_MS)
        state.update((count, newest_ms))
        state.setTimeoutTimestamp(newest_ms + SILENCE_MS)
    row = {"device_id": key[0], "count": count, "timed_out": state.hasTimedOut}
    yield pd.DataFrame([row])


def plain_count(bronze: DataFrame) -> DataFrame:
    """The running count as Spark's documentation would have it: keyed by device."""
    return (
        bronze.select("device_id", "event_time")
        .withWatermark("event_time", f"{WATERMARK_DELAY.total_seconds():.0f} seconds")
        .groupBy("device_id")
        .applyInPandasWithState(
            count_signals,
            COUNTED_DDL,
            COUNT_STATE_DDL,
            "update",
            GroupStateTimeout.EventTimeTimeout,
        )
    )


def live_count(bronze: DataFrame) -> DataFrame:
    """The stream device_signals as its job runs it: keyed by bucket."""
    return live_fold(bronze, FOLD, BUCKETS, PARTITIONS, WATERMARK_DELAY, pack=pack_files)


def run_query(
    spark: SparkSession,
    bronze: str,
    folder: str,
    name: str,
    provider: str,
    count: Callable[[DataFrame], DataFrame],
) -> Ran:
    """Drain `bronze`, one commit a batch, over a state store of that provider."""
    settings = {**STATE, **SNAPSHOTS, **ROWS_COUNTED}
    settings[f"{STATE_STORE}.providerClass"] = f"{PROVIDERS}.{provider}"
    for setting, value in settings.items():
        spark.conf.set(setting, value)
    ran = Ran(name, f"{folder}/checkpoints/{name}")
    # From the first version: commits come as batches in their own order.
    stream = spark.readStream.format("delta").option("startingVersion", 0)
    query = (
        count(stream.option("maxFilesPerTrigger", 1).load(bronze))
        .writeStream.queryName(name)
        .outputMode("append" if count is live_count else "update")
        .foreachBatch(_keeper(spark, ran))
        .option("checkpointLocation", ran.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    ran.progress = list(query.recentProgress)
    return ran


def _keeper(spark: SparkSession, ran: Ran) -> Callable[[DataFrame, int], None]:
    """Keeps each batch's rows and its plan, which is gone when the next one is planned."""

    def keep(batch: DataFrame, batch_id: int) -> None:
        ran.outputs[batch_id] = batch.collect()
        (query,) = spark.streams.active
        ran.plans[batch_id] = executed_plan(query)

    return keep


def executed_plan(query: StreamingQuery) -> str:
    """The physical plan of the query's last batch; Spark only ever prints it."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        query.explain()
    return printed.getvalue()
