"""One contender of the benchmark, in a process of its own: prints its batches as JSON.

python -m tests.benchmarks.contender ours .bench/dense --buckets 32
"""

import json
import os
import shutil
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from include.fold.ddl import output_ddl
from include.registry import stream_named
from include.spark.conf import BASE, STATE, driver_java_options, jars
from include.streams import user_counts
from spark_jobs.engines.checkpointed_states import read_states, read_waiting
from spark_jobs.engines.live import live_fold
from spark_jobs.engines.packing import unpack

DELAY = stream_named("user_counts").watermark_delay
COUNTED = "user_id string, total_count bigint"
PARTITIONS = 4


def ours(rows: DataFrame, buckets: int) -> DataFrame:
    """This project's live engine: admission, pending events and timers included."""
    folded = live_fold(rows, user_counts.FOLD, buckets, PARTITIONS, DELAY)
    return unpack(folded, "outputs", output_ddl(user_counts.FOLD))


def native(rows: DataFrame, buckets: int) -> DataFrame:
    """Spark's own aggregation: no user code at all."""
    return rows.groupBy("user_id").count()


def apply_in_pandas(rows: DataFrame, buckets: int) -> DataFrame:
    """PySpark's applyInPandasWithState, grouped by key, as its documentation shows it."""

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


def transform_with_state(rows: DataFrame, buckets: int) -> DataFrame:
    return rows.groupBy("user_id").transformWithState(CountProcessor(), COUNTED, "Update", "None")


CONTENDERS: dict[str, Callable[[DataFrame, int], DataFrame]] = {
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
        **(checkpoint_conf or {}),
        "spark.jars": ",".join(str(jar) for jar in jars()),
        "spark.driver.extraJavaOptions": driver_java_options(),
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
    }


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in settings().items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(name: str, files: Path, buckets: int) -> dict[str, Any]:
    """Every file as one batch. Seconds per batch, bytes of the checkpoint after each, total."""
    spark = session()
    checkpoint = Path(tempfile.mkdtemp(prefix="bench-", dir=files.parent))
    schema = spark.read.parquet(str(files)).schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(files))
    bytes_after: list[int] = []
    query = (
        CONTENDERS[name](rows, buckets)
        .writeStream.outputMode("append" if name == "ours" else "update")
        .foreachBatch(lambda frame, _: _consume(frame, checkpoint, bytes_after))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [p for p in query.recentProgress if p.numInputRows > 0]
    result = {
        "seconds": [p.durationMs["triggerExecution"] / 1000 for p in batches],
        "state_files_bytes": [*bytes_after[1:], _size(checkpoint)][: len(batches)],
        "counted": _counted(spark, name, checkpoint),
    }
    shutil.rmtree(checkpoint)
    return result


def _consume(frame: DataFrame, checkpoint: Path, bytes_after: list[int]) -> None:
    bytes_after.append(_size(checkpoint))  # before the batch: what the earlier ones wrote
    frame.write.format("noop").mode("overwrite").save()


def _size(checkpoint: Path) -> int:
    return sum(f.stat().st_size for f in (checkpoint / "state").rglob("*") if f.is_file())


def _counted(spark: SparkSession, name: str, checkpoint: Path) -> int:
    """Events in the final state, pending ones included: every contender must have them all."""
    spark.streams.active  # noqa: B018 the state reader needs what this starts (SPARK-58973)
    reader = spark.read.format("statestore")
    if name == "ours":
        states = read_states(spark, str(checkpoint), user_counts.FOLD)
        folded = states.agg(F.sum("state.total_count")).first()[0]
        waiting = read_waiting(spark, str(checkpoint)).agg(F.sum("waiting")).first()[0]
        return (folded or 0) + (waiting or 0)
    if name == "transform_with_state":
        return (
            reader.option("stateVarName", "total")
            .load(str(checkpoint))
            .agg(F.sum("value.total_count"))
            .first()[0]
        )
    column = "value.count" if name == "native" else "value.groupState.total_count"
    return reader.load(str(checkpoint)).agg(F.sum(column)).first()[0]


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=sorted(CONTENDERS))
    parser.add_argument("files", type=Path)
    parser.add_argument("--buckets", type=int, default=32)
    args = parser.parse_args()
    sys.stdout.write(json.dumps(run(args.contender, args.files, args.buckets)) + "\n")


if __name__ == "__main__":
    main()
