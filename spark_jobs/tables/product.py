"""The product: a Delta table per stream, each batch committed once, and intervals of its rows replaced.

Two libraries write it in turn: delta-rs an Arrow table, without a JVM, and Spark a DataFrame.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
from delta.tables import DeltaTable
from deltalake.table import TableMerger
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    ParseException,
    PySparkException,
    SparkRuntimeException,
)
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.arrow_values import output_schema
from include.fold.definition import (
    EMITTED_AT,
    EMITTED_AT_US,
    EMITTED_DATE,
    REMOVED,
    Definition,
    output_ddl,
)
from include.fold.product_table import can_keep_rows, ensure_product, product_columns, same_key
from include.lake.columns import INSTANT, documented, without_comments
from include.lake.errors import SettingsError
from include.lake.lease import check_held
from include.lake.ops import despite_others
from include.lake.paths import Lake
from include.lake.table import Record, Table, stage, transaction
from include.settings import Check, Verdict

EXAMPLES = 3
# Errors of a condition for some row: 1 / 0, CAST('a' AS int), element_at(list, 5).
OF_ROWS = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)


def refuse_wrong(rows: DataFrame, checks: Sequence[Check]) -> None:
    """Raise SettingsError for the first check that Spark cannot ask of such rows; none is read."""
    for check in checks:
        try:
            _ = rows.agg(_answer(check)).schema
        except (AnalysisException, ParseException) as error:
            raise SettingsError(
                f"check {check.name}: `{check.condition}`: {_said(error)}", subject=check.name
            ) from error


def _said(error: PySparkException) -> str:
    return str(error).strip().splitlines()[0]  # a line that is empty comes first


def judge_rows(rows: DataFrame, checks: Sequence[Check]) -> list[Verdict]:
    """Return each check's verdict on the rows, in one pass; none of no rows. One that fails for a row is not met."""
    try:
        return _judged(rows, checks)
    except OF_ROWS as error:
        if len(checks) == 1:
            return [Verdict(checks[0], rows.count(), None, problem=_said(error))]
        return [verdict for check in checks for verdict in judge_rows(rows, [check])]


def _judged(rows: DataFrame, checks: Sequence[Check]) -> list[Verdict]:
    asked = [_answer(check).alias(f"answer_{number}") for number, check in enumerate(checks)]
    answers = rows.agg(F.count(F.lit(1)), *asked).collect()[0]
    count = answers[0]
    if not count:
        return []
    return [_verdict(rows, *asked, count) for asked in zip(checks, answers[1:], strict=True)]


def _answer(check: Check) -> Column:
    """Return the number of rows that do not meet the check; of rows together 0, or null when they do not."""
    if check.each_row is not None:
        return F.count_if(~_is_met(check))
    return F.when(_is_met(check), F.lit(0))


def _is_met(check: Check) -> Column:
    return F.coalesce(F.expr(check.condition), F.lit(False))


def _verdict(rows: DataFrame, check: Check, failing: int | None, count: int) -> Verdict:
    if not failing:
        return Verdict(check, count, failing)
    found = rows.where(~_is_met(check)).limit(EXAMPLES)
    whole = F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("row")
    return Verdict(check, count, failing, tuple(row[0] for row in found.select(whole).collect()))


TXN_APP_ID = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"

Rows: TypeAlias = pa.Table | DataFrame


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set `settings` on the session while the body runs."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            spark.conf.unset(name) if known is None else spark.conf.set(name, known)


def range_condition(at: str, date: str, from_us: int | None, until_us: int | None) -> str:
    """Return the condition for rows with `at` from one instant on and before another; `date` is the partition.

    It bounds the partition, too: by instants alone it would conflict with appends.
    """
    parts = []
    for bound_us, operator, of_date in ((from_us, ">=", ">="), (until_us, "<", "<=")):
        if bound_us is not None:
            bound = f"timestamp_micros({bound_us}L)"
            parts.append(f"{at} {operator} {bound} AND {date} {of_date} to_date({bound})")
    return " AND ".join(parts) or "true"


# A replacement that changes less than this share merges the changed rows, so that the change feed has no others.
FEW = 0.1


class Product:
    """The table of one stream, made or opened: TableSchemaError when it has other columns.

    Each commit carries a record, and LakeError is raised when others have changed the table since the newest.
    Without a session it writes Arrow tables alone.
    """

    def __init__(
        self,
        lake: Lake,
        stream: str,
        definition: Definition,
        is_rebuilt: bool = False,
        session: SparkSession | None = None,
    ) -> None:
        self.path = lake.table(stream)
        self._fold = definition.fold
        self._session = session
        self._documented = documented(product_columns(definition.fold, definition.comments))
        self._plain = without_comments(self._documented)
        # For a MERGE: all columns of the table.
        self._values: dict[str, Any] = {f"`{n}`": f"new.`{n}`" for n in self._plain.names}
        self._table = Table(lake, self.path, ensure_product(self.path, definition, is_rebuilt))
        self._can_keep_rows = can_keep_rows(self._table.delta, definition)

    def _follow(self, is_recreated: bool = False) -> None:
        """Move on to the newest version; LakeError when others have changed its rows."""
        self._table.reopen()
        if not is_recreated:
            self._table.record()

    # The stream's checks

    def refuse_wrong(self, checks: Sequence[Check]) -> None:
        """Raise SettingsError for a check whose condition cannot be asked of the table's rows."""
        nothing = self._spark.createDataFrame([], output_ddl(self._fold))
        refuse_wrong(self._stored_frame(nothing), checks)

    def judge(
        self, emitted: Rows, checks: Sequence[Check], from_us: int | None = None
    ) -> list[Verdict]:
        """Return each check's verdict on the rows that were emitted from one instant on; none of no rows."""
        is_here = isinstance(emitted, pa.Table)  # what was fetched goes back to Spark
        frame = self._spark.createDataFrame(emitted) if is_here else emitted
        return judge_rows(self._stored_frame(_emitted_from(frame, from_us)), checks)

    # A batch

    def write_once(self, emitted: Rows | None, app_id: str, batch_id: int, record: Record) -> None:
        """Commit a batch with its rows (None: none), unless `app_id` has written this batch before."""
        if isinstance(emitted, DataFrame):
            self._write_by_spark(emitted, app_id, batch_id, record)
            return
        rows = output_schema(self._fold).empty_table() if emitted is None else emitted

        def write() -> None:
            self._follow()
            written = self._table.delta.transaction_version(app_id)
            if written is not None and written >= batch_id:
                return
            batch, stored = transaction(app_id, batch_id), self._stored(rows)
            if self._fold.output_mode == "append" or not rows.num_rows:
                by = EMITTED_DATE if EMITTED_DATE in self._plain.names else None
                self._table.commit(stage(self.path, stored, self._plain, by), record, batch)
                return
            merged = stored.append_column(REMOVED, rows[REMOVED])
            self._table.merge(merged, same_key(self._fold), self._clauses, record, batch)

        despite_others(write)

    def _clauses(self, merge: TableMerger) -> TableMerger:
        return (
            merge.when_matched_delete(f"new.{REMOVED}")
            .when_matched_update(self._values)
            .when_not_matched_insert(self._values, predicate=f"NOT new.{REMOVED}")
        )

    def _stored(self, emitted: pa.Table) -> pa.Table:
        """Rows as the table has them."""
        at = emitted[EMITTED_AT_US].cast(INSTANT)
        rows = emitted.append_column(EMITTED_AT, at)
        rows = rows.append_column(EMITTED_DATE, at.cast(pa.date32()))
        return rows.select(self._plain.names).cast(self._plain)

    # By Spark

    @property
    def _spark(self) -> SparkSession:
        assert self._session is not None  # or no DataFrame could have been made
        return self._session

    def _write_by_spark(
        self, emitted: DataFrame, app_id: str, batch_id: int, record: Record
    ) -> None:
        self._follow()
        text = self._table.text(record)
        if self._fold.output_mode == "append":
            options = {"txnAppId": app_id, "txnVersion": str(batch_id), "userMetadata": text}
            writer = self._stored_frame(emitted).write.mode("append").format("delta")
            writer.options(**options).save(self.path)
            return
        # A MERGE has no options. Within `foreachBatch` the outer session's settings are ignored,
        # silently; and a second write to the table in the same batch would be skipped, too.
        settings = {TXN_APP_ID: app_id, TXN_VERSION: str(batch_id), USER_METADATA: text}
        rows = emitted.withColumn(EMITTED_AT, F.timestamp_micros(EMITTED_AT_US))
        with session_settings(rows.sparkSession, settings):
            (
                DeltaTable.forPath(rows.sparkSession, self.path)
                .alias("old")
                .merge(rows.alias("new"), same_key(self._fold))
                .whenMatchedDelete(f"new.{REMOVED}")
                .whenMatchedUpdate(set=self._values)
                .whenNotMatchedInsert(f"NOT new.{REMOVED}", values=self._values)
                .execute()
            )

    def replace(
        self,
        emitted: DataFrame,
        record: Record,
        from_us: int | None = None,
        until_us: int | None = None,
        is_recreated: bool = False,
    ) -> tuple[int, int]:
        """Replace the rows from one instant on and before another by those emitted, in one commit; return the
        numbers of rows before and after. None: no bound, as for an update table.

        When few rows differ, and no column has maps, these alone are merged. `is_recreated`: whatever others have changed. Where no
        row can stay, the table gets new columns.
        """
        self._follow(is_recreated)
        within = range_condition(f"old.{EMITTED_AT}", f"old.{EMITTED_DATE}", from_us, until_us)
        rows = self._stored_frame(_emitted_from(emitted, from_us))
        old = self._spark.read.format("delta").load(self.path).alias("old")
        is_whole = not self._can_keep_rows and from_us is None
        known = () if is_whole else old.columns
        new_columns = [field for field in self._documented if field.name not in known]
        check_held()
        # Spark groups by a map with its nulls as 0, and compares none in the condition of a MERGE.
        if new_columns or "map<" in str(rows.dtypes):
            before, after = old.where(within).count(), rows.count()
        else:
            balance = _balance(old.where(within).select(rows.columns), rows)
            before, after, changed = _sums(balance)
            if not changed:  # of nothing for nothing Spark makes no commit
                self._table.commit([], record)
                return before, after
            if not is_recreated and changed <= before * FEW:
                self._merge_changed(balance, within, record)
                return before, after
        text = self._table.text(record, self._plain if is_whole else None)
        writer = reduce(_with_comment, new_columns, rows).write.format("delta").mode("overwrite")
        if is_whole:
            writer = writer.option("overwriteSchema", True)
            if EMITTED_DATE in self._plain.names:
                writer = writer.partitionBy(EMITTED_DATE)
        else:
            replaced = range_condition(EMITTED_AT, EMITTED_DATE, from_us, until_us)
            writer = writer.options(replaceWhere=replaced, mergeSchema=bool(new_columns))
        writer.option("userMetadata", text).save(self.path)
        return before, after

    def _merge_changed(self, balance: DataFrame, within: str, record: Record) -> None:
        """Commit the difference alone: all rows that equal a changed one go, and come as often as they should."""
        goes = F.array_repeat(F.lit(True), F.least("_before", F.lit(1)).cast("int"))
        comes = F.array_repeat(F.lit(False), F.col("_after").cast("int"))
        rows = balance.where("_before != _after").select(
            *(F.col(f"_{n}").alias(name) for n, name in enumerate(self._plain.names)),
            F.explode(F.concat(goes, comes)).alias("_goes"),
        )
        same = (f"old.`{name}` <=> new.`{name}`" for name in self._plain.names)
        with session_settings(self._spark, {USER_METADATA: self._table.text(record)}):
            (
                DeltaTable.forPath(self._spark, self.path)
                .alias("old")
                .merge(rows.alias("new"), " AND ".join([f"new._goes AND {within}", *same]))
                .whenMatchedDelete()
                .whenNotMatchedInsert("NOT new._goes", values=self._values)
                .execute()
            )

    def _stored_frame(self, emitted: DataFrame) -> DataFrame:
        """Return rows as the table has them; of an update stream without removed keys."""
        rows = emitted.withColumn(EMITTED_AT, F.timestamp_micros(EMITTED_AT_US))
        if self._fold.output_mode == "append":
            rows = rows.withColumn(EMITTED_DATE, F.to_date(EMITTED_AT))
        elif REMOVED in emitted.columns:
            rows = rows.where(~F.col(REMOVED))
        return rows.select(*(F.col(f"`{name}`") for name in self._plain.names))


def _with_comment(rows: DataFrame, field: pa.Field) -> DataFrame:
    return rows.withMetadata(field.name, {"comment": field.metadata[b"comment"].decode()})


def _emitted_from(emitted: DataFrame, from_us: int | None) -> DataFrame:
    return emitted if from_us is None else emitted.where(F.col(EMITTED_AT_US) >= from_us)


def _balance(old: DataFrame, new: DataFrame) -> DataFrame:
    """Return each row, its values by position (`_0`, `_1`), with its number `_before` and `_after`."""
    values = [f"_{position}" for position in range(len(new.columns))]
    sides = (
        rows.toDF(*values).withColumn("_is_new", F.lit(n)) for n, rows in enumerate((old, new))
    )
    counts = (F.count_if(F.col("_is_new") == n) for n in (0, 1))
    named = (count.alias(name) for count, name in zip(counts, ("_before", "_after"), strict=True))
    return reduce(DataFrame.union, sides).groupBy(*values).agg(*named)


def _sums(balance: DataFrame) -> tuple[int, int, int]:
    """Return the numbers of rows before and after, and of those that differ."""
    changed = F.abs(F.col("_before") - F.col("_after"))
    sums = (F.sum(column) for column in ("_before", "_after", changed))
    row = balance.agg(*(F.coalesce(total, F.lit(0)) for total in sums)).collect()[0]
    return row[0], row[1], row[2]
