"""Savepoints as Delta rows, by Spark: written in one pass over a state, and read back."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.admission import EPOCH, MICROSECOND
from include.fold.definition import KeyedFold
from include.lake.paths import Lake
from include.savepoints.manifest import Contents, SavepointError, beside_in, savepoint_table
from spark_jobs.tables.rejected import row_checksum

NO_TABLE = {"DELTA_TABLE_NOT_FOUND", "PATH_NOT_FOUND"}
# Java's own says `(Permission denied)` and `(Too many open files)` by this class, too, and Spark
# calls all of them FAILED_READ_FILE.FILE_NOT_EXIST.
NO_FILE = ("java.io.FileNotFoundException", re.compile(r"does not exist|No such file"))
DAMAGED_CLASSES = (".ChecksumException", ".TProtocolException")
DAMAGED = re.compile(r"is not a Parquet file|FAILED_TO_UNCOMPRESS|\bcorrupt", re.IGNORECASE)


class Cause(NamedTuple):
    """An exception of the JVM."""

    java_class: str
    message: str


def damage_in(error: Exception) -> str | None:
    """What of a table is gone or damaged, in one line; None when the error does not say so."""
    if isinstance(error, PySparkException) and error.getCondition() in NO_TABLE:
        return str(error).partition("\n")[0]
    # Py4J's error has it by the one name, those of PySpark by the other.
    origin = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found = (cause for cause in _causes(origin) if is_damage(cause))
    return next((cause.message.partition("\n")[0] for cause in found), None)


def is_damage(cause: Cause) -> bool:
    """Whether it says that a file is gone, or that what is in it is no more what was written."""
    java_class, words = NO_FILE
    if cause.java_class == java_class:
        return words.search(cause.message) is not None
    if cause.java_class.startswith("org.apache.spark."):
        return False  # it says where, and gives advice; what happened is in its cause
    if cause.java_class.endswith(DAMAGED_CLASSES):
        return True
    return DAMAGED.search(cause.message) is not None


def _causes(error: Any) -> Iterator[Cause]:
    while error is not None:
        yield Cause(error.getClass().getName(), error.getMessage() or "")
        error = error.getCause()


CHECKED = ("key", "state", "changed_at", "timeout_at")


def write_rows(
    lake: Lake, states: DataFrame, fold: KeyedFold, savepoint_id: str, until_us: int
) -> str:
    """Write `states` (rows of `state_rows_ddl(fold)`) as a savepoint's. The table's path below
    the lake."""
    path = savepoint_table(lake, fold)
    rows = states.select(
        F.lit(savepoint_id).alias("savepoint_id"),
        F.lit(EPOCH + until_us * MICROSECOND).cast("timestamp").alias("until"),
        "key",
        "state",
        F.timestamp_micros("changed_at_us").alias("changed_at"),
        F.timestamp_micros("timeout_at_us").alias("timeout_at"),
        *(column.name for column in fold.beside),
    )
    writer = rows.write.format("delta").mode("overwrite")
    writer.option("replaceWhere", f"savepoint_id = '{savepoint_id}'").save(f"{lake.root}/{path}")
    return path


def read_contents(session: SparkSession, lake: Lake, path: str, savepoint_id: str) -> Contents:
    """What the rows of a savepoint come to.

    Raises SavepointError when a file or the table is gone or damaged, any other error as it is.
    """
    try:
        return _contents(_rows_of(session, lake, path, savepoint_id))
    except (PySparkException, Py4JJavaError) as error:
        damage = damage_in(error)
        if damage is None:
            raise
        raise SavepointError(
            f"savepoint {savepoint_id} of {lake.root}/{path} cannot be read: {damage}",
            subject=savepoint_id,
        ) from error


def read_rows(session: SparkSession, lake: Lake, path: str, savepoint_id: str) -> DataFrame:
    """The rows of a savepoint as `state_rows_ddl` has them, for who has checked them already."""
    rows = _rows_of(session, lake, path, savepoint_id=savepoint_id)
    return rows.select(
        F.lit(0).alias("bucket"),
        "key",
        "state",
        F.unix_micros("changed_at").alias("changed_at_us"),
        F.unix_micros("timeout_at").alias("timeout_at_us"),
        *beside_in(rows.columns),
    )


def _rows_of(session: SparkSession, lake: Lake, path: str, savepoint_id: str) -> DataFrame:
    table = session.read.format("delta").load(f"{lake.root}/{path}")
    return table.where(F.col("savepoint_id") == savepoint_id)


def _contents(rows: DataFrame) -> Contents:
    checked = (*CHECKED, *beside_in(rows.columns))
    row = rows.agg(F.count(F.lit(1)), row_checksum(rows, *checked)).collect()[0]
    return Contents(int(row[0]), str(int(row[1])))


def delete_rows(session: SparkSession, table: str, savepoint_ids: Sequence[str]) -> None:
    """Delete the rows of savepoints that are in the manifest no more, or never were."""
    # Whole partitions: Delta only takes their files out of the log.
    DeltaTable.forPath(session, table).delete(F.col("savepoint_id").isin(list(savepoint_ids)))
