"""The product: a Delta table per stream, and how a batch gets into it exactly once."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from delta.tables import DeltaTable
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.fold.definition import (
    EMITTED_AT,
    EMITTED_AT_US,
    EMITTED_DATE,
    REMOVED,
    KeyedFold,
)
from spark_jobs.lake.delta_table import Column, create_if_absent
from spark_jobs.lake.exactly_once import append_once, delta_transaction

log = logging.getLogger("job.tables")

PROPERTIES = {
    # Readers without a JVM (delta-rs, DuckDB) must be able to read all tables.
    "delta.enableDeletionVectors": "false",
    # Delta forgets a checkpoint's batches after this: longer than any pause before a repeat.
    "delta.setTransactionRetentionDuration": "interval 365 days",
}
EMITTED_AT_COMMENTS = {
    "append": "When the event (or timeout) that emitted the row was, on the stream's clock, UTC",
    "update": "When the key last changed, on the stream's clock, UTC",
}


class TableSchemaError(RuntimeError):
    """The table has other columns than its stream now writes."""


class RangeChange(NamedTuple):
    """Rows of a range before and after, and how many of them differ."""

    before: int
    after: int
    removed: int
    added: int


NO_CHANGE = RangeChange(0, 0, 0, 0)


def _range_condition(from_us: int | None, until_us: int | None) -> str:
    """With bounds of the partition, too: by the instants alone it would conflict with appends."""
    parts = []
    for bound_us, operator, of_date in ((from_us, ">=", ">="), (until_us, "<", "<=")):
        if bound_us is not None:
            at = f"timestamp_micros({bound_us}L)"
            parts.append(f"{EMITTED_AT} {operator} {at} AND {EMITTED_DATE} {of_date} to_date({at})")
    return " AND ".join(parts) or "true"


def _compare(old: DataFrame, new: DataFrame) -> RangeChange:
    """How two sets of rows differ, equal rows counted: in one pass over both."""
    tagged = old.withColumn("_sign", F.lit(1)).unionByName(new.withColumn("_sign", F.lit(-1)))
    balance = tagged.groupBy(*old.columns).agg(
        F.sum("_sign").alias("net"),
        F.count_if(F.col("_sign") > 0).alias("before"),
        F.count_if(F.col("_sign") < 0).alias("after"),
    )
    sums = (
        F.sum("before"),
        F.sum("after"),
        F.sum(F.greatest("net", F.lit(0))),
        F.sum(F.greatest(-F.col("net"), F.lit(0))),
    )
    row = balance.agg(*(F.coalesce(total, F.lit(0)) for total in sums)).collect()[0]
    return RangeChange(*(int(value) for value in row))


class ProductTable:
    """The Delta table of one stream. Append: all outputs. Update: the latest row per key."""

    def __init__(self, path: str, fold: KeyedFold, comments: Mapping[str, str]) -> None:
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

    def write_once(self, emitted: DataFrame, app_id: str, batch_id: int) -> None:
        """Write what a batch emitted, unless `app_id` has written this batch before.

        `emitted` has the output's columns and `emitted_at_us`; in an update stream also
        `removed`, for keys whose row is to go.
        """
        rows = emitted.withColumn(EMITTED_AT, F.timestamp_micros(EMITTED_AT_US))
        if self._fold.output_mode == "append":
            rows = rows.withColumn(EMITTED_DATE, F.to_date(EMITTED_AT))
            columns = [column.name for column in self._columns()]
            append_once(rows.select(columns), self.path, app_id, batch_id)
        else:
            self._merge(rows, app_id, batch_id)

    def replace_all(self, emitted: DataFrame) -> None:
        """Make these the only rows of an update table, in one commit."""
        rows = emitted.withColumn(EMITTED_AT, F.timestamp_micros(EMITTED_AT_US))
        columns = [column.name for column in self._columns()]
        rows.select(columns).write.format("delta").mode("overwrite").save(self.path)

    def replace_range(
        self, emitted: DataFrame, from_us: int | None, until_us: int | None
    ) -> RangeChange:
        """Make these the only rows of an append table emitted from one instant and before another.

        One commit; none when nothing would change. None is no bound. The rows must be within.
        """
        session = emitted.sparkSession
        rows = emitted.withColumn(EMITTED_AT, F.timestamp_micros(EMITTED_AT_US))
        rows = rows.withColumn(EMITTED_DATE, F.to_date(EMITTED_AT))
        new = rows.select([column.name for column in self._columns()])
        condition = _range_condition(from_us, until_us)
        old = session.read.format("delta").load(self.path).where(condition)
        change = _compare(old, new)
        if change.removed or change.added:
            writer = new.write.format("delta").mode("overwrite")
            writer.option("replaceWhere", condition).save(self.path)
        return change

    def _merge(self, rows: DataFrame, app_id: str, batch_id: int) -> None:
        session = rows.sparkSession
        columns: dict[str, str | SparkColumn] = {
            column.name: f"new.`{column.name}`" for column in self._columns()
        }
        key = self._fold.key
        with delta_transaction(session, app_id, batch_id):
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
