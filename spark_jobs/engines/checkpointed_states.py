"""What the live engine keeps in a checkpoint, read with Spark's state reader."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.admission import NEVER_US
from include.fold.ddl import KEYS, STATES
from include.fold.definition import KeyedFold
from include.fold.states import NO_STATE_US


def read_variable(session: SparkSession, checkpoint: str, name: str, **options: Any) -> DataFrame:
    """A state variable of each bucket, as column `name`, after the last batch or that of `batchId`."""
    _ = session.streams.active  # starts what the state reader needs in a new session (SPARK-58973)
    reader = session.read.format("statestore").options(stateVarName=name, **options)
    return reader.load(checkpoint).select("partition_id", "key.bucket", F.col("value").alias(name))


def read_states(
    session: SparkSession, checkpoint: str, fold: KeyedFold, **options: Any
) -> DataFrame:
    """The states in a checkpoint, as rows of `state_rows_ddl(fold)`; `options` as above."""
    keys, states = (read_variable(session, checkpoint, name, **options) for name in (KEYS, STATES))
    fields = [f"states.state.{column.name}" for column in fold.state_columns]
    times = ["states.changed_at_us"] + ["states.timeout_at_us"] * fold.times_out
    zipped = F.arrays_zip("keys.key", *times, *fields)
    rows = keys.join(states, "bucket").select("bucket", F.explode(zipped).alias("row"))
    state = F.struct(*(F.col(f"row.{column.name}") for column in fold.state_columns))
    changed_us, timeout_us = F.col("row.changed_at_us"), F.lit(None).cast("bigint")
    if fold.times_out:
        state = F.when(changed_us != NO_STATE_US, state)
        timeout_us = F.nullif("row.timeout_at_us", F.lit(NEVER_US))
    return rows.select(
        "bucket",
        "row.key",
        state.alias("state"),
        F.nullif(changed_us, F.lit(NO_STATE_US)).alias("changed_at_us"),
        timeout_us.alias("timeout_at_us"),
    )
