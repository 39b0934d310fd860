"""Rows of a range replaced without a JVM: the commits that `Product.replace` makes with Spark."""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, write_deltalake

from include.fold.admission import instant_of
from include.lake.columns import instant_scalar
from include.lake.delta_log import unbroken
from include.lake.lease import check_held
from include.lake.paths import files_of
from include.lake.table import USER_METADATA, Record, Table

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


def replace_within(table: Table, within: Range, rows: pa.Table, record: Record) -> tuple[int, int]:
    """Make those of `rows` in the range the only ones there, in one commit; how many there were, and are."""
    new = rows.filter(within.rows())
    # Not by files: Delta cuts the instants of its statistics to milliseconds.
    files = table.delta.to_pyarrow_dataset(filesystem=files_of(table.path))
    with unbroken(table.path):
        before = files.to_table(columns=[within.at]).filter(within.rows()).num_rows
    has_more = len(new.schema) > len(table.columns())
    check_held()
    if before or new.num_rows or has_more:
        write_deltalake(
            table.delta,
            new,
            mode="overwrite",
            schema_mode="merge" if has_more else None,
            predicate=within.predicate(),
            commit_properties=table.telling(record),
        )
    else:
        table.commit([], record)
    return before, new.num_rows


def replace_columns(
    table: Table, rows: pa.Table, partition_by: list[str], record: Record
) -> tuple[int, int]:
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
    return before, rows.num_rows
