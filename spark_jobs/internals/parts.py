"""What the demo says of its queries: a text for each part."""

import re
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.ddl import BUCKET_STATE, KEYS
from include.streams.device_signals import FOLD
from spark_jobs.engines.checkpointed_states import read_states
from spark_jobs.internals.queries import PARTITIONS, Ran
from spark_jobs.internals.text import UUID, frame_table, table

PROGRESS = ("batch", "watermark", "rows in", "total", "updated", "removed", "dropped", "commit ms")
FOLDED = ("rows_in", "rows_late", "rows_folded", "pending_change", "rows_out")


class CountsDifferError(Exception):
    """The same signals were counted differently."""


def progress_table(progress: Sequence[Any]) -> str:
    """What the operator reports of each batch."""
    rows = []
    for batch in (batch for batch in progress if batch.stateOperators):
        (state,) = batch.stateOperators
        rows.append(
            (
                batch.batchId,
                batch.eventTime["watermark"],
                batch.numInputRows,
                state.numRowsTotal,
                state.numRowsUpdated,
                state.numRowsRemoved,
                state.numRowsDroppedByWatermark,
                state.commitTimeMs,
            )
        )
    return table(PROGRESS, rows)


def folded_table(live: Ran) -> str:
    """What our engine reports of each bucket that it called in a batch."""
    rows = [
        (batch, row["bucket"], *(row[name] for name in FOLDED))
        for batch, folded in live.outputs.items()
        for row in sorted(folded, key=lambda row: int(row["bucket"]))
    ]
    return table(("batch", "bucket", *FOLDED), rows)


def stored(spark: SparkSession, ran: Ran, **options: Any) -> DataFrame:
    """The query's state, by Spark's `statestore` source."""
    _ = spark.streams.active  # starts what the source needs in a new session (SPARK-58973)
    return spark.read.format("statestore").options(**options).load(ran.checkpoint)


def metadata_table(spark: SparkSession, ran: Ran) -> str:
    """What the checkpoint says of the operator, by Spark's `state-metadata` source."""
    operator = spark.read.format("state-metadata").load(ran.checkpoint)
    variables = F.from_json(
        "operatorProperties", "stateVariables array<struct<stateName: string>>"
    )["stateVariables"]["stateName"]
    ours = F.filter(variables, lambda name: ~name.startswith("$"))  # the timers' are Spark's
    names = F.array_join(F.sort_array(ours), " ").alias("state variables")
    columns = ("operatorName", "stateStoreName", "numPartitions", "minBatchId", "maxBatchId")
    return frame_table(operator.select(*columns, names))


def plain_states(spark: SparkSession, plain: Ran, batch: int) -> str:
    """The plain operator's rows after a batch: a row for each key."""
    rows = stored(spark, plain, batchId=batch)
    return frame_table(rows.select("partition_id", "key.device_id", "value.*"))


def live_states(spark: SparkSession, live: Ran) -> str:
    """Our rows as they are stored, by variable, and as `read_states` unpacks them."""
    text = ""
    for variable in (KEYS, BUCKET_STATE):
        rows = stored(spark, live, stateVarName=variable)
        values = rows.select("partition_id", "key.bucket", "value.*")
        # Of packed bytes only how many there are says something to a reader.
        packed = [name for name, kind in values.dtypes if kind == "binary"]
        for name in packed:
            values = values.withColumn(name, F.octet_length(name))
        text += f"stateVarName={variable}\n{frame_table(values)}"
    timers = stored(spark, live, readRegisteredTimers=True)
    timers = timers.select("partition_id", "key.bucket", "expiration_timestamp_ms")
    text += f"readRegisteredTimers=true\n{frame_table(timers)}"
    states = read_states(spark, live.checkpoint, FOLD)
    return f"{text}engines.checkpointed_states.read_states:\n{frame_table(states)}"


def counts_table(expected: dict[int, int], hdfs: Ran, rocksdb: Ran) -> str:
    """Each device's last count by either provider. Raises CountsDifferError."""
    by_hdfs, by_rocksdb = last_counts(hdfs), last_counts(rocksdb)
    if not expected == by_hdfs == by_rocksdb:
        raise CountsDifferError(f"expected {expected}, HDFS {by_hdfs}, RocksDB {by_rocksdb}")
    if sorted_outputs(hdfs) != sorted_outputs(rocksdb):
        raise CountsDifferError("the same counts came in other batches")
    rows = [(key, expected[key], by_hdfs[key], by_rocksdb[key]) for key in sorted(expected)]
    return table(("device_id", "plain Python", "HDFS-backed", "RocksDB"), rows)


def last_counts(plain: Ran) -> dict[int, int]:
    """The last count that was emitted of each device."""
    return {row["device_id"]: row["count"] for rows in plain.outputs.values() for row in rows}


def sorted_outputs(plain: Ran) -> dict[int, list[Any]]:
    """What each batch emitted, whatever the order of its partitions."""
    return {batch: sorted(map(tuple, rows)) for batch, rows in plain.outputs.items()}


def files_table(hdfs: Ran, rocksdb: Ran) -> str:
    """The state files of both checkpoints, partition by partition."""
    rows = []
    for partition in range(PARTITIONS):
        pairs = zip_longest(
            state_files(hdfs, partition), state_files(rocksdb, partition), fillvalue=("", "")
        )
        rows += [(partition, *left, *right) for left, right in pairs]
    return table(("partition", "HDFS-backed", "bytes", "RocksDB", "bytes"), rows)


def state_files(ran: Ran, partition: int) -> list[tuple[str, int]]:
    """Names and bytes, by version; without Hadoop's checksums (hidden) and the schema."""
    folder = Path(ran.checkpoint, "state", "0", str(partition))
    files = (file for file in folder.rglob("*") if file.is_file() and file.name[0] != ".")
    sizes = [
        (re.sub(UUID, "<id>", str(file.relative_to(folder))), file.stat().st_size)
        for file in files
        if file.parent.name != "_metadata"
    ]
    return sorted(sizes, key=lambda size: (size[0].startswith("SSTs"), size[0]))
