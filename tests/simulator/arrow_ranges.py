"""Rows of a range replaced without a JVM: the commits that `replace_rows` of product.py makes with Spark."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake

from include.fold.admission import instant_of
from include.lake.columns import instant_scalar
from include.lake.delta_log import delta_table
from include.lake.lease import check_held
from include.lake.ops import despite_others
from include.lake.paths import files_of
from include.lake.stream_result import RangeChange
from include.lake.table import USER_METADATA
from spark_jobs.tables.arrow_tables import tell

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


def replace_within(path: str, within: Range, rows: pa.Table, record: str) -> RangeChange:
    """Make those of `rows` in the range the only ones there of the table at `path`.

    One commit, which carries the record.
    """
    new = rows.filter(within.rows())

    def replace() -> RangeChange:
        table = delta_table(path)
        change = _compare(_rows_within(table, path, within, new.schema), new)
        if change.removed or change.added:
            overwrite(table, new, within.predicate(), {USER_METADATA: record})
        else:
            tell(path, record)
        return change

    return despite_others(replace)


def overwrite(
    table: DeltaTable, rows: pa.Table, predicate: str, metadata: dict[str, str] | None
) -> None:
    """Make these the only rows that meet the predicate, in one commit."""
    check_held()
    commit = CommitProperties(custom_metadata=metadata)
    write_deltalake(table, rows, mode="overwrite", predicate=predicate, commit_properties=commit)


def _rows_within(table: DeltaTable, path: str, within: Range, schema: pa.Schema) -> pa.Table:
    # Not by files: Delta cuts the instants of its statistics to milliseconds, and Arrow takes them for
    # exact.
    files = table.to_pyarrow_dataset(filesystem=files_of(path))
    return files.to_table().cast(schema).filter(within.rows())


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
