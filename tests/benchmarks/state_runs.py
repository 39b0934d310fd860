"""Runs of the live engine for the state benchmarks, measured by counters, bytes and clocks.

Only the state is of interest: the folded rows are thrown away, no table is written. The
settings of the state stores are read when a query starts, so one JVM can run under one after
the other. What Spark keeps between queries is put away first.
"""

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from include.lake.paths import Lake
from include.settings import Stream
from include.spark.conf import STATE_STORE
from include.stream_definition import load_definition
from spark_jobs.engines.engine import LiveQuery
from spark_jobs.engines.live import plan_fold, session_settings
from tests.benchmarks.data import INSTANT, START_US, Shape, write_batches

INGESTED_US = START_US + 10**15  # later than all events
# Only what is asked for may clean up: no background thread in the middle of a series.
QUIET = {f"{STATE_STORE}.maintenanceInterval": str(24 * 3_600_000)}
# Spark's metrics of a batch: flows are added up over a run's batches, levels are its highest.
FLOWS = {
    "logs replayed": "rocksdbNumReplayChangelogFiles",
    "gets": "rocksdbGetCount",
    "puts": "rocksdbPutCount",
    "bytes read": "rocksdbTotalBytesRead",
    "bytes written": "rocksdbTotalBytesWritten",
    "bytes flushed": "rocksdbTotalBytesWrittenByFlush",
    "bytes compacted": "rocksdbTotalBytesWrittenByCompaction",
    "block misses": "rocksdbReadBlockCacheMissCount",
    "load ms": "rocksdbLoadLatencyMs",
    "replay ms": "rocksdbReplayChangeLogLatencyMs",
    "get ms": "rocksdbGetLatency",
    "put ms": "rocksdbPutLatency",
    "flush ms": "rocksdbCommitFlushLatency",
    "compact ms": "rocksdbCommitCompactLatency",
    "snapshot ms": "rocksdbCommitCheckpointLatency",
    "upload ms": "rocksdbCommitFileSyncLatencyMs",
}
LEVELS = {"SST bytes": "rocksdbSstFileSize"}
CLOCKS = (*(n for n in FLOWS if n.endswith(" ms")), "batches ms", "CPU ms", "run ms")


def append_bronze(lake: Lake, source: str, file: Path, number: int) -> None:
    """One commit of bronze from a file of `data.write_batches`."""
    rows = pq.read_table(file)
    count = rows.num_rows
    rows = rows.append_column("event_date", pc.cast(rows["event_time"], pa.date32()))
    ingested = np.full(count, INGESTED_US + number * 60_000_000)
    rows = rows.append_column("ingested_at", pa.array(ingested, INSTANT))
    rows = rows.append_column("source_file", pa.array(["a.parquet"] * count))
    write_deltalake(lake.bronze(source), rows, mode="append")


class Feed:
    """Commits for one lake: `shapes` in order, as files that are made once."""

    def __init__(self, folder: Path, lake: Lake, source: str, shapes: list[Shape]) -> None:
        write_batches(folder, shapes)
        self._files = enumerate(sorted(folder.glob("*.parquet"))[: len(shapes)])
        self._lake, self._source = lake, source

    def land(self) -> None:
        number, file = next(self._files)
        append_bronze(self._lake, self._source, file, number)


def measured_run(
    spark: SparkSession, lake: Lake, stream: Stream, checkpoint: Path, conf: Mapping[str, str]
) -> dict[str, float]:
    """Fold what is new in bronze, under `conf` (full names of settings); the run's figures."""
    forget_state(spark)
    before = state_files(checkpoint)
    usage = Usage(spark)
    with session_settings(spark, {**QUIET, **conf}):
        progress = _drain(spark, lake, stream, checkpoint)
    return {
        **_files_written(before, state_files(checkpoint)),
        **_spark_figures([p for p in progress if p.stateOperators]),
        **usage.figures(),
    }


def _drain(
    spark: SparkSession, lake: Lake, stream: Stream, checkpoint: Path
) -> Sequence[StreamingQueryProgress]:
    fold = load_definition(stream).fold
    live = LiveQuery(lake, stream, fold, str(checkpoint), None, None, compacting=False, settings={})
    query = (
        plan_fold(spark, live)
        .writeStream.foreachBatch(_discard)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query.recentProgress


def _discard(folded: DataFrame, batch_id: int) -> None:
    folded.write.format("noop").mode("overwrite").save()


def copy_folder(folder: Path, to: Path) -> Path:
    """A copy at `to`, replacing what is there."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    return to


def state_files(checkpoint: Path) -> dict[str, int]:
    """Bytes of each file of the state, by path."""
    return {str(f): f.stat().st_size for f in (checkpoint / "state").rglob("*") if f.is_file()}


def _files_written(before: dict[str, int], after: dict[str, int]) -> dict[str, float]:
    new = after.keys() - before.keys()
    return {
        "files written": float(len(new)),
        "bytes uploaded": float(sum(after[name] for name in new)),
        "checkpoint files": float(len(after)),
        "checkpoint bytes": float(sum(after.values())),
    }


def _spark_figures(progress: Sequence[StreamingQueryProgress]) -> dict[str, float]:
    operators = [operator for batch in progress for operator in batch.stateOperators]
    metrics = [operator.customMetrics for operator in operators]
    batches_ms = sum(batch.durationMs["triggerExecution"] for batch in progress)
    return {
        **{n: float(sum(m.get(metric, 0) for m in metrics)) for n, metric in FLOWS.items()},
        **{n: float(max(m.get(metric, 0) for m in metrics)) for n, metric in LEVELS.items()},
        "store memory": float(max(operator.memoryUsedBytes for operator in operators)),
        "batches ms": float(batches_ms),
    }


class Usage:
    """The JVM's time from here on. CPU time minds other processes less than the clock does."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = spark.sparkContext._jvm
        self._process = psutil.Process(int(self._jvm.java.lang.ProcessHandle.current().pid()))
        self._started, self._cpu = time.perf_counter(), self._cpu_seconds()

    def figures(self) -> dict[str, float]:
        return {
            "CPU ms": (self._cpu_seconds() - self._cpu) * 1000,
            "run ms": (time.perf_counter() - self._started) * 1000,
        }

    def _cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


def forget_state(spark: SparkSession) -> None:
    """Unload all state stores, and let the next query set its own limit on memory.

    A new process starts so. (Spark's own tests do it this way; there is nothing public.)
    """
    _singleton(spark, "StateStore").unloadAll()
    _singleton(spark, "RocksDBMemoryManager").resetWriteBufferManagerAndCache()
    spark.sparkContext._jvm.java.lang.System.gc()


def _singleton(spark: SparkSession, name: str) -> Any:
    loader = spark.sparkContext._jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    kind = loader.loadClass(f"org.apache.spark.sql.execution.streaming.state.{name}$")
    return kind.getField("MODULE$").get(None)


def use_project_python() -> None:
    """Python workers need the project on their path, and the local address."""
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
