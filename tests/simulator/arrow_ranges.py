"""Rows of a range replaced without a JVM: the commits that `Product.replace` makes with Spark."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, write_deltalake

from include.fold.admission import instant_of
from include.lake.columns import instant_scalar
from include.lake.lease import check_held
from include.lake.paths import files_of
from include.lake.table import USER_METADATA, Record, Table
from spark_jobs.tables.product import RangeChange

# Without a predicate delta-rs lets rows stand that another writer has appended meanwhile.
EVERYTHING = "true"


class Range(NamedTuple):
    """The rows with the instant `at` from one on and before another; `date` is their partition."""

    at: str
    date: str
    from_us: int | None  # None: no bound
    until_us: int | None

    def rows(self) -> pc.Expression:
        """Those rows."""
        within = pc.scalar(True)
        if self.from_us is not None:
            within &= pc.field(self.at) >= instant_scalar(self.from_us)
        if self.until_us is not None:
            within &= pc.field(self.at) < instant_scalar(self.until_us)
        return within

    def predicate(self) -> str:
        """Both, for delta-rs: by the instants alone it would conflict with appends."""
        parts = []
        bounds = ((self.from_us, ">=", ">="), (self.until_us, "<", "<="))
        for bound_us, operator, of_date in bounds:
            if bound_us is not None:
                at = f"arrow_cast({bound_us}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
                date = instant_of(bound_us).date()
                parts.append(f"{self.at} {operator} {at} AND {self.date} {of_date} '{date}'")
        return " AND ".join(parts) or EVERYTHING


def replace_within(table: Table, within: Range, rows: pa.Table, record: Record) -> RangeChange:
    """Make those of `rows` in the range the only ones there of a table.

    One commit, which carries the record.
    """
    new = rows.filter(within.rows())
    change = _compare(_rows_within(table, within, new.schema), new)
    if change.removed or change.added or len(new.schema) > len(table.columns()):
        check_held()
        write_deltalake(
            table.delta,
            new,
            mode="overwrite",
            schema_mode="merge" if len(new.schema) > len(table.columns()) else None,
            predicate=within.predicate(),
            commit_properties=table.telling(record),
        )
    else:
        table.commit([], record)
    return change


def replace_columns(
    table: Table, rows: pa.Table, partition_by: list[str], record: Record
) -> RangeChange:
    """Make rows of other columns the whole table, in one commit, which carries the record."""
    before = table.delta.to_pyarrow_dataset(filesystem=files_of(table.path)).count_rows()
    check_held()
    told = {USER_METADATA: table.text(record, rows.schema)}
    write_deltalake(
        table.delta,
        rows,
        partition_by=partition_by,
        mode="overwrite",
        schema_mode="overwrite",
        commit_properties=CommitProperties(custom_metadata=told, max_commit_retries=0),
    )
    return RangeChange(before, rows.num_rows, before, added=rows.num_rows)


def _rows_within(table: Table, within: Range, schema: pa.Schema) -> pa.Table:
    # Not by files: Delta cuts the instants of its statistics to milliseconds, and Arrow takes them for
    # exact.
    files = table.delta.to_pyarrow_dataset(filesystem=files_of(table.path))
    rows = files.to_table()
    for field in schema:
        if field.name not in rows.column_names:  # a column that the rows which come here add
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema).filter(within.rows())


def _compare(old: pa.Table, new: pa.Table) -> RangeChange:
    """How two sets of rows differ, equal rows counted."""
    before, after = Counter(_rows_of(old)), Counter(_rows_of(new))
    return RangeChange(
        old.num_rows, new.num_rows, (before - after).total(), (after - before).total()
    )


def _rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Each row as a value that equals that of an equal row, as Spark groups them."""
    columns = (_comparable(column) for column in table.columns)
    return zip(*columns, strict=True)


def _comparable(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values = column.to_pylist()
    is_plain = not (pa.types.is_nested(column.type) or pa.types.is_floating(column.type))
    return values if is_plain else list(map(_hashable, values))


def _hashable(value: Any) -> Any:
    """NaN is no number that equals itself; in a group of rows it is one."""
    if isinstance(value, dict):
        return tuple(map(_hashable, value.values()))
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    return "NaN" if value != value else value
