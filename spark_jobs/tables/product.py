"""The product: a Delta table per stream, and how a batch gets into it exactly once."""

from collections.abc import Mapping

from delta.tables import DeltaTable
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from include.fold.definition import (
    EMITTED_AT,
    EMITTED_AT_US,
    EMITTED_DATE,
    REMOVED,
    KeyedFold,
)
from include.fold.product_table import product_columns, same_key
from include.lake.lease import check_held
from include.lake.open_delta import refuse_older
from include.lake.range_change import RangeChange
from spark_jobs.tables.exactly_once import append_once, delta_transaction
from spark_jobs.tables.row_ranges import range_condition, replace_rows


class DeltaProduct:
    """The Delta table of one stream. Append: all outputs. Update: the latest row per key.

    `mark` is what a commit says of itself in the table's log.
    """

    def __init__(self, path: str, fold: KeyedFold, comments: Mapping[str, str]) -> None:
        self.path = path
        self._fold = fold
        self._columns = product_columns(fold, comments)

    def write_once(self, emitted: DataFrame, app_id: str, batch_id: int, mark: str) -> None:
        """Write what a batch emitted, unless `app_id` has written this batch before.

        `emitted` has the output's columns and `emitted_at_us`; in an update stream also
        `removed`, for keys whose row is to go.
        """
        if self._fold.output_mode == "append":
            append_once(self.stored(emitted), self.path, app_id, batch_id, mark)
        else:
            rows = emitted.withColumn(EMITTED_AT, F.timestamp_micros(EMITTED_AT_US))
            self._merge(rows, app_id, batch_id, mark)

    def replace_all(self, emitted: DataFrame, mark: str) -> None:
        """Make these the only rows of an update table, in one commit."""
        rows = emitted.withColumn(EMITTED_AT, F.timestamp_micros(EMITTED_AT_US))
        writer = self._ordered(rows).write.format("delta").mode("overwrite")
        check_held()
        refuse_older(self.path)
        writer.option("userMetadata", mark).save(self.path)

    def replace_range(
        self, emitted: DataFrame, from_us: int | None, until_us: int | None, mark: str
    ) -> RangeChange:
        """Make these the only rows of an append table emitted from one instant and before another.

        One commit; none when nothing would change. None is no bound. The rows must be within.
        """
        condition = range_condition(EMITTED_AT, EMITTED_DATE, from_us, until_us)
        return replace_rows(self.stored(emitted), self.path, condition, mark)

    def stored(self, emitted: DataFrame) -> DataFrame:
        """Rows as the table has them; of an update stream without the keys that are to go."""
        rows = emitted.withColumn(EMITTED_AT, F.timestamp_micros(EMITTED_AT_US))
        if self._fold.output_mode == "append":
            rows = rows.withColumn(EMITTED_DATE, F.to_date(EMITTED_AT))
        elif REMOVED in emitted.columns:
            rows = rows.where(~F.col(REMOVED))
        return self._ordered(rows)

    def _ordered(self, rows: DataFrame) -> DataFrame:
        """The table's columns of `rows`, in its order."""
        return rows.select(*(F.col(f"`{column.name}`") for column in self._columns))

    def _merge(self, rows: DataFrame, app_id: str, batch_id: int, mark: str) -> None:
        session = rows.sparkSession
        columns: dict[str, str | SparkColumn] = {
            f"`{column.name}`": f"new.`{column.name}`" for column in self._columns
        }
        refuse_older(self.path)
        with delta_transaction(session, app_id, batch_id, mark):
            (
                DeltaTable.forPath(session, self.path)
                .alias("old")
                .merge(rows.alias("new"), same_key(self._fold))
                .whenMatchedDelete(f"new.{REMOVED}")
                .whenMatchedUpdate(set=columns)
                .whenNotMatchedInsert(f"NOT new.{REMOVED}", values=columns)
                .execute()
            )
