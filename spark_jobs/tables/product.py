"""The product: a Delta table per stream, and how a batch gets into it exactly once."""

import logging
from collections.abc import Mapping

from delta.tables import DeltaTable
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.definition import (
    EMITTED_AT,
    EMITTED_AT_US,
    EMITTED_DATE,
    REMOVED,
    KeyedFold,
)
from include.fold.product_columns import product_columns
from include.lake.range_change import RangeChange
from spark_jobs.tables.delta_table import create_if_absent
from spark_jobs.tables.exactly_once import append_once, delta_transaction
from spark_jobs.tables.row_ranges import range_condition, replace_rows

log = logging.getLogger("job.tables")

PROPERTIES = {
    # Readers without a JVM (delta-rs, DuckDB) must be able to read all tables.
    "delta.enableDeletionVectors": "false",
    # Delta forgets a checkpoint's batches after this: longer than any pause before a repeat.
    "delta.setTransactionRetentionDuration": "interval 365 days",
}


class TableSchemaError(RuntimeError):
    """The table has other columns than its stream now writes."""


class DeltaProduct:
    """The Delta table of one stream. Append: all outputs. Update: the latest row per key.

    `mark` is what a commit says of itself in the table's log.
    """

    def __init__(self, path: str, fold: KeyedFold, comments: Mapping[str, str]) -> None:
        self.path = path
        self._fold = fold
        self._columns = product_columns(fold, comments)

    def ensure(self, session: SparkSession, comment: str) -> None:
        """Create the table with its documented columns, or check that it has them.

        Raises TableSchemaError before anything is written.
        """
        if not DeltaTable.isDeltaTable(session, self.path):
            self._create(session, comment)
            return
        found = session.read.format("delta").load(self.path).dtypes
        expected = [(column.name, column.type) for column in self._columns]
        if found != expected:
            raise TableSchemaError(
                f"{self.path} has columns {found}, but the stream now writes {expected}: "
                "restore the stream's output record, or move the table away"
            )

    def write_once(self, emitted: DataFrame, app_id: str, batch_id: int, mark: str) -> None:
        """Write what a batch emitted, unless `app_id` has written this batch before.

        `emitted` has the output's columns and `emitted_at_us`; in an update stream also
        `removed`, for keys whose row is to go.
        """
        rows = emitted.withColumn(EMITTED_AT, F.timestamp_micros(EMITTED_AT_US))
        if self._fold.output_mode == "append":
            rows = rows.withColumn(EMITTED_DATE, F.to_date(EMITTED_AT))
            append_once(self._ordered(rows), self.path, app_id, batch_id, mark)
        else:
            self._merge(rows, app_id, batch_id, mark)

    def replace_all(self, emitted: DataFrame, mark: str) -> None:
        """Make these the only rows of an update table, in one commit."""
        rows = emitted.withColumn(EMITTED_AT, F.timestamp_micros(EMITTED_AT_US))
        writer = self._ordered(rows).write.format("delta").mode("overwrite")
        writer.option("userMetadata", mark).save(self.path)

    def replace_range(
        self, emitted: DataFrame, from_us: int | None, until_us: int | None, mark: str
    ) -> RangeChange:
        """Make these the only rows of an append table emitted from one instant and before another.

        One commit; none when nothing would change. None is no bound. The rows must be within.
        """
        rows = emitted.withColumn(EMITTED_AT, F.timestamp_micros(EMITTED_AT_US))
        rows = rows.withColumn(EMITTED_DATE, F.to_date(EMITTED_AT))
        condition = range_condition(EMITTED_AT, EMITTED_DATE, from_us, until_us)
        return replace_rows(self._ordered(rows), self.path, condition, mark)

    def _ordered(self, rows: DataFrame) -> DataFrame:
        """The table's columns of `rows`, in its order."""
        return rows.select(*(F.col(f"`{column.name}`") for column in self._columns))

    def _merge(self, rows: DataFrame, app_id: str, batch_id: int, mark: str) -> None:
        session = rows.sparkSession
        columns: dict[str, str | SparkColumn] = {
            f"`{column.name}`": f"new.`{column.name}`" for column in self._columns
        }
        key = self._fold.key
        with delta_transaction(session, app_id, batch_id, mark):
            (
                DeltaTable.forPath(session, self.path)
                .alias("old")
                .merge(rows.alias("new"), f"old.`{key}` = new.`{key}`")
                .whenMatchedDelete(f"new.{REMOVED}")
                .whenMatchedUpdate(set=columns)
                .whenNotMatchedInsert(f"NOT new.{REMOVED}", values=columns)
                .execute()
            )

    def _create(self, session: SparkSession, comment: str) -> None:
        properties = dict(PROPERTIES)
        if self._fold.output_mode == "update":
            properties["delta.enableChangeDataFeed"] = "true"
        partition_by = [EMITTED_DATE] if self._fold.output_mode == "append" else []
        create_if_absent(session, self.path, self._columns, comment, properties, partition_by)
        log.info("created %s", self.path)
