"""The product: a Delta table per stream, and how a batch gets into it exactly once."""

import logging
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.engines.packing import unpack
from spark_jobs.engines.schemas import EMITTED_AT_US, REMOVED, output_ddl
from spark_jobs.fold.definition import EMITTED_AT, KeyedFold
from spark_jobs.lake.delta_table import Column, create_if_absent
from spark_jobs.lake.exactly_once import append_once, delta_transaction

log = logging.getLogger("job.tables")

EMITTED_DATE = "emitted_date"
PROPERTIES = {
    # Readers without a JVM (delta-rs, DuckDB) must be able to read all tables.
    "delta.enableDeletionVectors": "false",
    # Delta forgets a checkpoint's batches after this: longer than any pause before a repeat.
    "delta.setTransactionRetentionDuration": "interval 365 days",
}
EMITTED_AT_COMMENTS = {
    "append": "Event time of the event (or timeout) that emitted the row, UTC",
    "update": "Event time of the key's last change, UTC",
}


class TableSchemaError(RuntimeError):
    """The table has other columns than its stream now writes."""


class ProductTable:
    """The Delta table of one stream. Append: all outputs. Update: the latest row per key."""

    def __init__(self, path: str, fold: KeyedFold, comments: dict[str, str]) -> None:
        self.path = path
        self._fold = fold
        self._comments = comments

    def ensure(self, session: SparkSession, comment: str) -> None:
        """Create the table with its documented columns, or check that it has them.

        Raises TableSchemaError before anything is written.
        """
        if not DeltaTable.isDeltaTable(session, self.path):
            self._create(session, comment)
            return
        found = session.read.format("delta").load(self.path).dtypes
        expected = [(column.name, column.type) for column in self._columns()]
        if found != expected:
            raise TableSchemaError(
                f"{self.path} has columns {found}, but the stream now writes {expected}: "
                "restore the stream's output record, or move the table away"
            )

    def write_once(self, folded: DataFrame, app_id: str, version: int) -> None:
        """Write what a batch emitted, unless this `version` of `app_id` has been written."""
        rows = unpack(folded, "outputs", output_ddl(self._fold)).withColumn(
            EMITTED_AT, F.timestamp_micros(EMITTED_AT_US)
        )
        if self._fold.output_mode == "append":
            rows = rows.withColumn(EMITTED_DATE, F.to_date(EMITTED_AT))
            append_once(
                rows.select([column.name for column in self._columns()]), self.path, app_id, version
            )
        else:
            self._merge(rows, app_id, version)

    def _merge(self, rows: DataFrame, app_id: str, version: int) -> None:
        session = rows.sparkSession
        columns: dict[str, str | SparkColumn] = {
            column.name: f"new.`{column.name}`" for column in self._columns()
        }
        key = self._fold.key
        with delta_transaction(session, app_id, version):
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
        create_if_absent(session, self.path, self._columns(), comment, properties, partition_by)
        log.info("created %s", self.path)

    def _columns(self) -> list[Column]:
        mode = self._fold.output_mode
        columns = [
            Column(c.name, c.kind, self._comments[c.name]) for c in self._fold.output_columns
        ]
        columns.append(Column(EMITTED_AT, "timestamp", EMITTED_AT_COMMENTS[mode]))
        if mode == "append":
            columns.append(Column(EMITTED_DATE, "date", "Partition: the date of emitted_at"))
        return columns


def count_folded(folded: DataFrame) -> dict[str, Any]:
    """The counts of a batch (FOLDED_DDL), added up over its buckets. Runs the whole frame."""
    row = folded.agg(
        *(
            F.coalesce(F.sum(name), F.lit(0)).alias(name)
            for name in ("rows_in", "rows_late", "rows_folded", "pending_change", "rows_out")
        ),
        F.count(F.lit(1)).alias("buckets_touched"),
        F.max("watermark_us").alias("watermark_us"),
    ).first()
    if row is None:  # an aggregate without groups always has one row
        raise RuntimeError("Spark returned no row for a global aggregate")
    return row.asDict()
