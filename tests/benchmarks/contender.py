"""One contender of the benchmark, in a process of its own: prints its batches as JSON.

python -m tests.benchmarks.contender ours .bench/dense --buckets 32 --workload sessions
"""

import json
import os
import shutil
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from include.fold.admission import NEVER_US
from include.fold.definition import output_ddl
from include.registry import stream_named
from include.spark.conf import BASE, FORKLESS, STATE, class_path, driver_java_options
from spark_jobs.engines.live import live_fold
from spark_jobs.engines.packed_files import BronzeEvents, events_between
from spark_jobs.engines.packing import Bounds, unpack
from spark_jobs.engines.state_rows import read_states, read_waiting, replay_fold
from tests.benchmarks.workloads import WORKLOADS, Workload

DELAY = stream_named("user_counts").watermark_delay
COUNTED = "user_id string, total_count bigint"
PARTITIONS, CORES = 4, 2
OF_GROUPS = "value.groupState."


def ours(rows: DataFrame, workload: Workload, buckets: int) -> DataFrame:
    """This project's live engine: admission, pending events and timers included."""
    folded = live_fold(rows, workload.fold, buckets, PARTITIONS, DELAY)
    return unpack(folded, "outputs", output_ddl(workload.fold))


def native(rows: DataFrame, workload: Workload, buckets: int) -> DataFrame:
    """Spark's own aggregation: no user code at all."""
    assert workload.native is not None
    return workload.native(rows)


def apply_in_pandas(rows: DataFrame, workload: Workload, buckets: int) -> DataFrame:
    """A count by PySpark's applyInPandasWithState by key, as its documentation shows it."""

    def count(
        key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        (total,) = state.get if state.exists else (0,)
        total += sum(len(frame) for frame in frames)
        state.update((total,))
        yield pd.DataFrame({"user_id": [key[0]], "total_count": [total]})

    return rows.groupBy("user_id").applyInPandasWithState(
        count, COUNTED, "total_count bigint", "update", GroupStateTimeout.NoTimeout
    )


class CountProcessor(StatefulProcessor):
    """PySpark's transformWithState with rows, as its documentation shows it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total_count bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        stored = self._total.get()
        total = (stored[0] if stored else 0) + sum(1 for _ in rows)
        self._total.update((total,))
        yield Row(user_id=key[0], total_count=total)


def transform_with_state(rows: DataFrame, workload: Workload, buckets: int) -> DataFrame:
    return rows.groupBy("user_id").transformWithState(CountProcessor(), COUNTED, "Update", "None")


CONTENDERS: dict[str, Callable[[DataFrame, Workload, int], DataFrame]] = {
    "ours": ours,
    "native": native,
    "apply_in_pandas": apply_in_pandas,
    "transform_with_state": transform_with_state,
}


def settings(checkpoint_conf: dict[str, str] | None = None) -> dict[str, str]:
    """The same for every contender, the Scala one included."""
    return {
        **BASE,
        **STATE,
        **FORKLESS,
        **(checkpoint_conf or {}),
        "spark.driver.extraClassPath": class_path(),
        "spark.driver.extraJavaOptions": driver_java_options(),
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
    }


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("bench")
    for name, value in settings().items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(name: str, files: Path, workload: Workload, buckets: int) -> dict[str, Any]:
    """Every file as one batch. Seconds per batch, bytes of the checkpoint after each, the result
    and how many events it does not have yet."""
    spark = session()
    checkpoint = Path(tempfile.mkdtemp(prefix="bench-", dir=files.parent))
    schema = spark.read.parquet(str(files)).schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(files))
    bytes_after: list[int] = []
    outputs: list[int] = []

    def consume(frame: DataFrame, _: int) -> None:
        bytes_after.append(_size(checkpoint))  # before the batch: what the earlier ones wrote
        outputs.append(_consumed(frame, workload.counts_outputs))

    query = (
        CONTENDERS[name](rows, workload, buckets)
        .writeStream.outputMode("append" if name == "ours" else "update")
        .foreachBatch(consume)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [p for p in query.recentProgress if p.numInputRows > 0]
    result = {
        "seconds": [p.durationMs["triggerExecution"] / 1000 for p in batches],
        "state_files_bytes": [*bytes_after[1:], _size(checkpoint)][: len(batches)],
        "result": _of_states(spark, name, workload, checkpoint) + sum(outputs),
        "waiting": _waiting(spark, checkpoint) if name == "ours" else 0,
    }
    shutil.rmtree(checkpoint)
    return result


def replay(files: Path, workload: Workload, buckets: int) -> dict[str, Any]:
    """All files at once, without a checkpoint, as backfills and rebuilds fold them."""
    with tempfile.TemporaryDirectory(dir=files.parent) as bronze:
        for path in sorted(files.glob("*.parquet")):
            rows = pq.read_table(path)
            rows = rows.append_column("ingested_at", rows["watermark_after"])
            write_deltalake(bronze, rows, mode="append")
        bounds = Bounds(NEVER_US)
        return _replayed(
            events_between(session(), bronze, workload.fold, bounds), workload, buckets
        )


def _replayed(events: BronzeEvents, workload: Workload, buckets: int) -> dict[str, Any]:
    began = time.monotonic()
    replayed = replay_fold(events, workload.fold, buckets, NEVER_US)
    _consumed(replayed.outputs, workload.counts_outputs)
    _consumed(replayed.states, False)
    seconds = time.monotonic() - began
    ((result,),) = replayed.states.selectExpr(workload.states).collect()
    return {"seconds": [seconds], "state_files_bytes": [], "result": result, "waiting": 0}


def _consumed(frame: DataFrame, is_counted: bool) -> int:
    """Write a batch to nowhere. How many rows it had, if that is asked for: else 0."""
    observed = Observation()
    if is_counted:
        frame = frame.observe(observed, F.count(F.lit(1)).alias("rows"))
    frame.write.format("noop").mode("overwrite").save()
    return int(observed.get["rows"]) if is_counted else 0


def _size(checkpoint: Path) -> int:
    return sum(f.stat().st_size for f in (checkpoint / "state").rglob("*") if f.is_file())


def _of_states(spark: SparkSession, name: str, workload: Workload, checkpoint: Path) -> int:
    """The result in the states after the last batch."""
    spark.streams.active  # noqa: B018 the state reader needs what this starts (SPARK-58973)
    reader, number = spark.read.format("statestore"), workload.states
    if name == "ours":
        states = read_states(spark, str(checkpoint), workload.fold)
    elif name == "transform_with_state":
        states = reader.option("stateVarName", "total").load(str(checkpoint))
        number = number.replace("state.", "value.")
    else:
        states = reader.load(str(checkpoint))
        number = workload.of_native if name == "native" else number.replace("state.", OF_GROUPS)
    (row,) = states.selectExpr(f"coalesce({number}, 0)").collect()
    return int(row[0])


def _waiting(spark: SparkSession, checkpoint: Path) -> int:
    """Events that ours has admitted and not folded yet: the latest ones."""
    (row,) = read_waiting(spark, str(checkpoint)).agg(F.sum("waiting")).collect()
    return int(row[0] or 0)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=sorted({*CONTENDERS, "replay"}))
    parser.add_argument("files", type=Path)
    parser.add_argument("--buckets", type=int, default=32)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="counts")
    args = parser.parse_args()
    workload = WORKLOADS[args.workload]
    if args.contender == "replay":
        result = replay(args.files, workload, args.buckets)
    else:
        result = run(args.contender, args.files, workload, args.buckets)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
