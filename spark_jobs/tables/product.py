"""The product: a Delta table per stream, written by Spark exactly once, and ranges of its rows replaced."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from delta.tables import DeltaTable
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.definition import EMITTED_AT, EMITTED_AT_US, EMITTED_DATE, REMOVED, KeyedFold
from include.fold.product_table import product_columns, same_key
from include.lake.lease import check_held
from include.lake.stream_result import RangeChange

TXN_APP_ID = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def append_once(
    df: DataFrame,
    path: str,
    app_id: str,
    batch_id: int,
    user_metadata: str | None = None,
) -> None:
    """Append `df` to the Delta table at `path` in one commit, unless this batch did so before.

    `user_metadata` is the record that the commit carries.
    """
    writer = df.write.format("delta").mode("append")
    writer = writer.option("txnAppId", app_id).option("txnVersion", str(batch_id))
    if user_metadata is not None:
        writer = writer.option("userMetadata", user_metadata)
    writer.save(path)


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """`settings` on the session while the body runs."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            spark.conf.unset(name) if known is None else spark.conf.set(name, known)


def delta_transaction(
    session: SparkSession, app_id: str, batch_id: int, user_metadata: str
) -> AbstractContextManager[None]:
    """The same for a MERGE, which has no options: set on the session while the body runs.

    Only one write per table: a second one in the same batch would be skipped, too. Within
    `foreachBatch` the outer session's settings are ignored, silently: give `df.sparkSession`.
    """
    settings = {TXN_APP_ID: app_id, TXN_VERSION: str(batch_id), USER_METADATA: user_metadata}
    return session_settings(session, settings)


def range_condition(at: str, date: str, from_us: int | None, until_us: int | None) -> str:
    """The rows with the instant `at` from one on and before another; `date` is their partition.

    With bounds of the partition, too: by the instants alone it would conflict with appends.
    """
    parts = []
    for bound_us, operator, of_date in ((from_us, ">=", ">="), (until_us, "<", "<=")):
        if bound_us is not None:
            bound = f"timestamp_micros({bound_us}L)"
            parts.append(f"{at} {operator} {bound} AND {date} {of_date} to_date({bound})")
    return " AND ".join(parts) or "true"


def replace_rows(new: DataFrame, path: str, condition: str, user_metadata: str) -> RangeChange:
    """Make these the only rows of the table at `path` that meet `condition`, as all of them must.

    One commit, which `user_metadata` is the record of; none when nothing would change.
    """
    old = new.sparkSession.read.format("delta").load(path).where(condition)
    change = _compare(old, new)
    if change.removed or change.added:
        check_held()
        writer = new.write.format("delta").mode("overwrite").option("replaceWhere", condition)
        writer.option("userMetadata", user_metadata).save(path)
    return change


def _compare(old: DataFrame, new: DataFrame) -> RangeChange:
    """How two sets of rows differ, equal rows counted: in one pass over both.

    The columns are taken by position: any name of ours could be one of an output's fields.
    """
    values = [f"value_{position}" for position in range(len(old.columns))]
    tagged = [rows.toDF(*values).withColumn("sign", F.lit(s)) for rows, s in ((old, 1), (new, -1))]
    balance = (
        tagged[0]
        .union(tagged[1])
        .groupBy(*values)
        .agg(
            F.sum("sign").alias("net"),
            F.count_if(F.col("sign") > 0).alias("before"),
            F.count_if(F.col("sign") < 0).alias("after"),
        )
    )
    sums = (
        F.sum("before"),
        F.sum("after"),
        F.sum(F.greatest("net", F.lit(0))),
        F.sum(F.greatest(-F.col("net"), F.lit(0))),
    )
    row = balance.agg(*(F.coalesce(total, F.lit(0)) for total in sums)).collect()[0]
    return RangeChange(*(int(value) for value in row))


class DeltaProduct:
    """The Delta table of one stream. Append: all outputs. Update: the latest row per key.

    `record` is the text of the record that a commit carries.
    """

    def __init__(self, path: str, fold: KeyedFold, comments: Mapping[str, str]) -> None:
        self.path = path
        self._fold = fold
        self._columns = product_columns(fold, comments)

    def write_once(self, emitted: DataFrame, app_id: str, batch_id: int, record: str) -> None:
        """Write what a batch emitted, unless `app_id` has written this batch before.

        `emitted` has the output's columns and `emitted_at_us`; in an update stream also
        `removed`, for keys whose row is to go.
        """
        if self._fold.output_mode == "append":
            append_once(self.stored(emitted), self.path, app_id, batch_id, record)
        else:
            rows = emitted.withColumn(EMITTED_AT, F.timestamp_micros(EMITTED_AT_US))
            self._merge(rows, app_id, batch_id, record)

    def replace_all(self, emitted: DataFrame, record: str) -> None:
        """Make these the only rows of an update table, in one commit."""
        rows = emitted.withColumn(EMITTED_AT, F.timestamp_micros(EMITTED_AT_US))
        writer = self._ordered(rows).write.format("delta").mode("overwrite")
        check_held()
        writer.option("userMetadata", record).save(self.path)

    def replace_range(
        self, emitted: DataFrame, from_us: int | None, until_us: int | None, record: str
    ) -> RangeChange:
        """Make these the only rows of an append table emitted from one instant and before another.

        One commit; none when nothing would change. None is no bound. The rows must be within.
        """
        condition = range_condition(EMITTED_AT, EMITTED_DATE, from_us, until_us=until_us)
        return replace_rows(self.stored(emitted), self.path, condition, user_metadata=record)

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

    def _merge(self, rows: DataFrame, app_id: str, batch_id: int, record: str) -> None:
        session = rows.sparkSession
        columns: dict[str, str | SparkColumn] = {
            f"`{column.name}`": f"new.`{column.name}`" for column in self._columns
        }
        with delta_transaction(session, app_id, batch_id, user_metadata=record):
            (
                DeltaTable.forPath(session, self.path)
                .alias("old")
                .merge(rows.alias("new"), same_key(self._fold))
                .whenMatchedDelete(f"new.{REMOVED}")
                .whenMatchedUpdate(set=columns)
                .whenNotMatchedInsert(f"NOT new.{REMOVED}", values=columns)
                .execute()
            )
