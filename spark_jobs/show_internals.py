"""Show what Spark prints of stateful queries and their state: docs/internals.md says what it means.

    .venv/bin/python -m spark_jobs.show_internals

Nine signals of three devices are counted by three queries: Spark's plain operator on both of its state
stores, and the engine of this project.
"""

import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from include.fold.definition import BUCKET_STATE, KEYS
from include.lake.paths import open_lake
from include.spark.conf import STATE, STATE_STORE
from include.spark.submit import run_job
from include.streams.device_signals import FOLD
from spark_jobs.engines.live import live_fold
from spark_jobs.engines.state_rows import read_states
from spark_jobs.job import exit_with_main, spark_session

BATCHES = ("1@12:00 1@12:02 2@12:01 3@12:03", "1@12:30 2@12:22", "1@11:50 2@12:15 1@12:50")
BATCH = 2  # the one to look into: late signals, new data and a timeout come together
INSTANT = pa.timestamp("us", "UTC")
Frames = Iterator[pd.DataFrame]
# State stores add their id to the name of their logger: only their package reaches them.
LOGGERS = ("streaming.state", "python.streaming", "streaming.runtime")


def write_bronze(path: str) -> None:
    """A bronze table with each batch as one commit, stamped as ingestion stamps it."""
    newest: datetime | None = None
    for batch in BATCHES:
        devices, times = zip(*(signal.split("@") for signal in batch.split()), strict=True)
        at = [datetime.fromisoformat(f"2026-03-01T{time}Z") for time in times]
        before, newest = newest, max(at if newest is None else [newest, *at])
        columns = {
            "device_id": [int(device) for device in devices],
            "value": [1] * len(at),
            "event_time": pa.array(at, INSTANT),
            "arrival_watermark": pa.array([before] * len(at), INSTANT),
            "commit_watermark": pa.array([newest] * len(at), INSTANT),
            "is_clock": [False] * len(at),
        }
        write_deltalake(path, pa.table(columns), mode="append")


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


def ours(bronze: DataFrame) -> DataFrame:
    return live_fold(bronze, FOLD, 4, 2, timedelta(minutes=10))


def run(spark: SparkSession, lake: str, name: str, count: Callable[[DataFrame], DataFrame]) -> str:
    """Drain bronze, one commit a batch, and print what Spark says of it; the checkpoint."""
    checkpoint = f"{lake}/checkpoints/{name}"
    sys.stdout.write(f"\n== {name}\n")
    stream = spark.readStream.format("delta").option("startingVersion", 0)
    query = (
        count(stream.option("maxFilesPerTrigger", 1).load(f"{lake}/bronze/signals"))
        .writeStream.outputMode("append" if count is ours else "update")
        .foreachBatch(partial(show_batch, spark))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for batch in query.recentProgress:
        sys.stdout.write(f"{batch.batchId} {batch.eventTime} {batch.stateOperators[0].json}\n")
    spark.read.format("state-metadata").load(checkpoint).show(truncate=False)
    return checkpoint


def show_batch(spark: SparkSession, rows: DataFrame, batch_id: int) -> None:
    """What a batch emits; of BATCH also its plan, and on stderr what is logged until its end."""
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
    if not sys.argv[1:]:  # as a job of its own, on a lake that is removed
        with TemporaryDirectory(prefix="internals-") as folder:
            sys.exit(run_job("show_internals", ["--lake", folder]))
    lake = open_lake(sys.argv[-1])
    spark = spark_session("show_internals")
    write_bronze(lake.bronze("signals"))
    counted = {f"{STATE_STORE}.rocksdb.trackTotalNumberOfRows": "true"}  # jobs leave it off
    for setting in {**STATE, **counted, "spark.sql.shuffle.partitions": "2"}.items():
        spark.conf.set(*setting)
    rocksdb = STATE[f"{STATE_STORE}.providerClass"]
    for provider in (rocksdb.replace("RocksDB", "HDFSBacked"), rocksdb):
        spark.conf.set(f"{STATE_STORE}.providerClass", provider)
        checkpoint = run(spark, lake.root, provider.rpartition(".")[2], plain)
        show_state(spark, checkpoint, batchId="1")
        show_state(spark, checkpoint)
        files = sorted(file.name for file in Path(checkpoint, "state/0/1").iterdir())
        sys.stdout.write(f"{files}\n")
    checkpoint = run(spark, lake.root, "device_signals", ours)
    for variable in (KEYS, BUCKET_STATE):
        show_state(spark, checkpoint, stateVarName=variable)
    show_state(spark, checkpoint, readRegisteredTimers="true")
    read_states(spark, checkpoint, FOLD).show(truncate=False)


if __name__ == "__main__":
    exit_with_main(main)
