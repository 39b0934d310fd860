"""Savepoints as Delta rows: written in one pass over a state, and checked before they are used."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.lake import Lake
from include.savepoints.manifest import Savepoint, mark_deleted, record_savepoint, savepoints_of
from spark_jobs.fold.admission import EPOCH, MICROSECOND
from spark_jobs.fold.definition import KeyedFold
from spark_jobs.lake.delta_table import Column, create_if_absent

CHECKED = ("key", "state", "changed_at", "timeout_at")
# Readers without a JVM must be able to read the table.
PROPERTIES = {"delta.enableDeletionVectors": "false"}


class SavepointError(RuntimeError):
    """The rows of a savepoint are not those that its manifest describes."""


class Contents(NamedTuple):
    """What a savepoint's rows come to."""

    keys: int
    checksum: str


def write_savepoint(
    lake: Lake, states: DataFrame, fold: KeyedFold, until_us: int, manifest: Mapping[str, Any]
) -> str:
    """Write `states` (rows of `state_rows_ddl(fold)`) as a savepoint, and return its id.

    `manifest` has the other columns of `ops/savepoints`; its row comes last, so a savepoint
    that was cut off does not exist. Raises SavepointError when what was written is not what
    was given.
    """
    session = states.sparkSession
    until = EPOCH + until_us * MICROSECOND
    savepoint_id = f"{until:%Y%m%dT%H%M%S%f}-{manifest['run_id'][:8]}"
    path = _table_for(session, lake, fold)
    rows = states.select(
        F.lit(savepoint_id).alias("savepoint_id"),
        F.lit(until).cast("timestamp").alias("until"),
        "key",
        "state",
        F.timestamp_micros("changed_at_us").alias("changed_at"),
        F.timestamp_micros("timeout_at_us").alias("timeout_at"),
    )
    writer = rows.write.format("delta").mode("overwrite")
    writer.option("replaceWhere", f"savepoint_id = '{savepoint_id}'").save(f"{lake.root}/{path}")
    contents = _contents(_rows_of(session, lake, path, savepoint_id))
    record_savepoint(
        lake,
        {
            **manifest,
            "savepoint_id": savepoint_id,
            "stream": fold.stream,
            "until": until,
            "created_at": datetime.now(UTC),
            "path": path,
            "keys": contents.keys,
            "checksum": contents.checksum,
        },
    )
    return savepoint_id


def read_savepoint(session: SparkSession, lake: Lake, savepoint: Savepoint) -> DataFrame:
    """The rows of a savepoint, as `state_rows_ddl` has them, once they have been checked.

    Raises SavepointError when they are not the ones that were written.
    """
    rows = _rows_of(session, lake, savepoint.path, savepoint.savepoint_id)
    try:
        found = _contents(rows)
    except PySparkException as error:
        reason = str(error).partition("\n")[0]
        raise SavepointError(f"{_named(lake, savepoint)} cannot be read: {reason}") from error
    if found != Contents(savepoint.keys, savepoint.checksum):
        raise SavepointError(
            f"{_named(lake, savepoint)} has {found.keys} rows with checksum {found.checksum}, but "
            f"ops/savepoints says {savepoint.keys} with {savepoint.checksum}"
        )
    return savepoint_states(session, lake, savepoint)


def savepoint_states(session: SparkSession, lake: Lake, savepoint: Savepoint) -> DataFrame:
    """The rows of a savepoint as `state_rows_ddl` has them, for who has checked them already."""
    rows = _rows_of(session, lake, savepoint.path, savepoint.savepoint_id)
    return rows.select(
        F.lit(0).alias("bucket"),
        "key",
        "state",
        F.unix_micros("changed_at").alias("changed_at_us"),
        F.unix_micros("timeout_at").alias("timeout_at_us"),
    )


def _named(lake: Lake, savepoint: Savepoint) -> str:
    return f"savepoint {savepoint.savepoint_id} of {lake.root}/{savepoint.path}"


def _rows_of(session: SparkSession, lake: Lake, path: str, savepoint_id: str) -> DataFrame:
    table = session.read.format("delta").load(f"{lake.root}/{path}")
    return table.where(F.col("savepoint_id") == savepoint_id)


def _contents(rows: DataFrame) -> Contents:
    # A wide decimal: a sum of 64-bit hashes outgrows 64 bits.
    checksum = F.sum(F.xxhash64(*CHECKED).cast("decimal(38, 0)"))
    row = rows.agg(F.count(F.lit(1)), F.coalesce(checksum, F.lit(0))).collect()[0]
    return Contents(int(row[0]), str(int(row[1])))


def _table_for(session: SparkSession, lake: Lake, fold: KeyedFold) -> str:
    """The table for states of this kind: one of another kind, from before a migration, is left
    as it is, and the next number taken."""
    columns = _columns(fold)
    number = 1
    while True:
        path = f"savepoints/{fold.stream}" + (f"-{number}" if number > 1 else "")
        if not lake.is_delta_table(f"{lake.root}/{path}"):
            create_if_absent(
                session,
                f"{lake.root}/{path}",
                columns,
                f"{fold.stream}: its state as of past instants",
                PROPERTIES,
                partition_by=["savepoint_id"],
            )
            return path
        found = session.read.format("delta").load(f"{lake.root}/{path}").dtypes
        if found == [(column.name, column.type) for column in columns]:
            return path
        number += 1


def _columns(fold: KeyedFold) -> list[Column]:
    fields = ",".join(f"{column.name}:{column.kind}" for column in fold.state_columns)
    return [
        Column("savepoint_id", "string", "The savepoint; ops/savepoints has its manifest"),
        Column("until", "timestamp", "The state is that of all events before this, UTC"),
        Column("key", fold.key_column.kind, "Key, with savepoint_id: whose state it is"),
        Column("state", f"struct<{fields}>", "The state; null for a key with only a timeout"),
        Column("changed_at", "timestamp", "When it last changed, on the stream's clock, UTC"),
        Column("timeout_at", "timestamp", "When it times out; null for never"),
    ]


def delete_savepoints(session: SparkSession, lake: Lake, savepoints: Sequence[Savepoint]) -> None:
    """Delete savepoints: first from the manifest, so that nobody begins to use them."""
    mark_deleted(lake, [savepoint.savepoint_id for savepoint in savepoints])
    for path in sorted({savepoint.path for savepoint in savepoints}):
        ids = [savepoint.savepoint_id for savepoint in savepoints if savepoint.path == path]
        delete_rows(session, f"{lake.root}/{path}", ids)


def delete_rows(session: SparkSession, table: str, savepoint_ids: Sequence[str]) -> None:
    """Delete the rows of savepoints that are in the manifest no more, or never were."""
    # Whole partitions: Delta only takes their files out of the log.
    DeltaTable.forPath(session, table).delete(F.col("savepoint_id").isin(list(savepoint_ids)))


def savepoint_at(lake: Lake, stream: str, savepoint_id: str) -> Savepoint | None:
    """The savepoint of that id; None when it is not there."""
    found = [sp for sp in savepoints_of(lake, stream) if sp.savepoint_id == savepoint_id]
    return found[0] if found else None
