"""Show what Spark prints of stateful queries and their state: docs/design.md says what it means.

    .venv/bin/python -m docs.show_internals

Nine signals of three devices are counted by three queries: Spark's plain operator on both of its
state stores, and the engine of this project.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from include.fold.definition import BUCKET_STATE, KEYS
from include.ingest.ingest import ingest
from include.lake.paths import Lake, open_lake
from include.registry import source_named
from include.spark.conf import STATE, STATE_STORE
from include.spark.submit import shell_environment
from include.streams.device_signals import FOLD
from spark_jobs.engines.live import live_fold
from spark_jobs.engines.state_rows import read_states
from spark_jobs.job import close_state_stores, spark_session

BATCHES = ("1@12:00 1@12:02 2@12:01 3@12:03", "1@12:30 2@12:22", "1@11:50 2@12:15 1@12:50")
BATCH = 2  # the one to look into: late signals, new data and a timeout come together
Frames = Iterator[pd.DataFrame]
Query = Callable[[DataFrame], DataFrame]
# State stores add their id to the name of their logger: only their package reaches them.
LOGGERS = ("streaming.state", "python.streaming", "streaming.runtime")


def ingest_batches(lake: Lake) -> None:
    """Each batch as one commit of bronze."""
    landing = Path(lake.landing("signals"))
    landing.mkdir(parents=True)
    for number, batch in enumerate(BATCHES):
        signals = (signal.split("@") for signal in batch.split())
        lines = (
            {"device_id": int(device), "value": 1, "timestamp": f"2026-03-01T{time}:00Z"}
            for device, time in signals
        )
        (landing / f"{number}.jsonl").write_text("\n".join(map(json.dumps, lines)))
        ingest(lake, source_named("signals"))


def count_signals(key: tuple[int], frames: Frames, state: GroupState) -> Frames:
    """The device's running count; once more, and for the last time, after its silence."""
    count, newest_ms = state.get if state.exists else (0, 0)
    if state.hasTimedOut:
        state.remove()
    else:
        for frame in frames:
            count += len(frame)
            newest_ms = max(newest_ms, int(frame["event_time"].max().value) // 1_000_000)
        state.update((count, newest_ms))
        state.setTimeoutTimestamp(newest_ms + 15 * 60 * 1000)
    yield pd.DataFrame([{"device_id": key[0], "count": count, "timed_out": state.hasTimedOut}])


def plain(bronze: DataFrame) -> DataFrame:
    """The running count as Spark's documentation would have it: keyed by device."""
    clocked = bronze.select("device_id", "event_time").withWatermark("event_time", "10 minutes")
    return clocked.groupBy("device_id").applyInPandasWithState(
        count_signals,
        "device_id bigint, count bigint, timed_out boolean",
        "count bigint, newest_ms bigint",
        "update",
        GroupStateTimeout.EventTimeTimeout,
    )


def run(spark: SparkSession, lake: Lake, name: str, count: Query) -> str:
    """Drain bronze, one commit a batch, and print what Spark says of it; the checkpoint."""
    checkpoint = lake.checkpoint(name, 1)
    sys.stdout.write(f"\n== {name}\n")
    stream = spark.readStream.format("delta").option("startingVersion", 0)
    bronze = stream.option("maxFilesPerTrigger", 1).load(lake.bronze("signals"))
    writer = count(bronze).writeStream.outputMode("update" if count is plain else "append")
    writer = writer.foreachBatch(partial(show_batch, spark))
    query = writer.trigger(availableNow=True).start(checkpointLocation=checkpoint)
    query.awaitTermination()
    for batch in query.recentProgress:
        sys.stdout.write(f"{batch.batchId} {batch.eventTime} {batch.stateOperators[0].json}\n")
    return checkpoint


def show_batch(spark: SparkSession, rows: DataFrame, batch_id: int) -> None:
    """Show the rows that a batch emits; for BATCH also its plan, and on stderr its log."""
    assert spark._jvm is not None
    log4j = spark._jvm.org.apache.logging.log4j
    level = log4j.Level.toLevel("INFO" if batch_id == BATCH else "ERROR")
    for name in LOGGERS:
        log4j.core.config.Configurator.setLevel(f"org.apache.spark.sql.execution.{name}", level)
    rows.drop("outputs", "dead_letters").show(truncate=False)
    if batch_id == BATCH:
        spark.streams.active[0].explain()


def show_state(spark: SparkSession, checkpoint: str, **options: str) -> None:
    """The rows of a state store after the last batch, or as `options` of Spark's source say."""
    sys.stdout.write(f"statestore {options}\n")
    spark.read.format("statestore").options(**options).load(checkpoint).show(truncate=50)


def main() -> None:
    with TemporaryDirectory(prefix="internals-") as folder:
        os.environ |= shell_environment(folder)
        spark = spark_session("show_internals")
        show_queries(spark, open_lake(folder))
        close_state_stores(spark)


def show_queries(spark: SparkSession, lake: Lake) -> None:
    """Drain the batches by each of the three queries, and show what each leaves."""
    ingest_batches(lake)
    counted = {f"{STATE_STORE}.rocksdb.trackTotalNumberOfRows": "true"}  # jobs leave it off
    for setting in {**STATE, **counted, "spark.sql.shuffle.partitions": "2"}.items():
        spark.conf.set(*setting)
    rocksdb = STATE[f"{STATE_STORE}.providerClass"]
    for provider in (rocksdb.replace("RocksDB", "HDFSBacked"), rocksdb):
        spark.conf.set(f"{STATE_STORE}.providerClass", provider)
        checkpoint = run(spark, lake, provider.rpartition(".")[2], plain)
        show_state(spark, checkpoint, batchId="1")
        files = sorted(file.name for file in Path(checkpoint, "state/0/1").iterdir())
        sys.stdout.write(f"{files}\n")
    ours = partial(
        live_fold, fold=FOLD, buckets=4, partitions=2, watermark_delay=timedelta(minutes=10)
    )
    checkpoint = run(spark, lake, "device_signals", ours)
    show_state(spark, checkpoint, stateVarName=KEYS)
    show_state(spark, checkpoint, stateVarName=BUCKET_STATE)
    show_state(spark, checkpoint, readRegisteredTimers="true")
    read_states(spark, checkpoint, FOLD).show(truncate=False)


if __name__ == "__main__":
    main()
