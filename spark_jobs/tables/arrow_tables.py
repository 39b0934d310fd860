"""The product, written without a JVM: the commits that `product.py` makes with Spark, by delta-rs.

Same columns, comments, properties and partitions, and the same way to write a batch once: either
may go on with a table that the other began. For small batches, whose rows fit in memory.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake

from include.fold.admission import instant_of
from include.fold.definition import EMITTED_AT, EMITTED_AT_US, EMITTED_DATE, REMOVED, KeyedFold
from include.fold.product_table import product_columns, same_key
from include.lake.columns import INSTANT, documented, instant_scalar, without_comments
from include.lake.commits import write_once
from include.lake.delta_log import delta_table
from include.lake.lease import check_held
from include.lake.ops import despite_others
from include.lake.paths import Lake, files_of
from include.lake.stream_result import (
    AT,
    AT_DATE,
    COLUMNS,
    MOST_KEYS,
    REPLACED,
    Summary,
    ensure_table,
)
from include.lake.table_seal import RangeChange

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

    def dates(self) -> pc.Expression:
        """The partitions that they are in."""
        within = pc.scalar(True)
        if self.from_us is not None:
            within &= pc.field(self.date) >= instant_of(self.from_us).date()
        if self.until_us is not None:
            within &= pc.field(self.date) <= instant_of(self.until_us).date()
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


def replace_within(
    path: str, within: Range, rows: pa.Table, metadata: dict[str, str] | None = None
) -> RangeChange:
    """Make those of `rows` in the range the only ones there of the table at `path`.

    One commit; none when nothing would change. `metadata` is what it says of itself.
    """
    new = rows.filter(within.rows())

    def replace() -> RangeChange:
        table = delta_table(path)
        change = _compare(_rows_within(table, path, within, new.schema), new)
        if change.removed or change.added:
            overwrite(table, new, within.predicate(), metadata)
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
    # Files by their partition alone: Delta cuts the instants of its statistics to
    # milliseconds, and Arrow takes them for exact.
    files = table.to_pyarrow_dataset(filesystem=files_of(path))
    return files.to_table(filter=within.dates()).cast(schema).filter(within.rows())


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


class ArrowProduct:
    """The Delta table of one stream. Append: all outputs. Update: the latest row per key.

    Rows are Arrow tables of `include.fold.schemas.output_schema(fold)`. `mark` is what a commit says
    of itself in the table's log.
    """

    def __init__(self, path: str, fold: KeyedFold, comments: Mapping[str, str]) -> None:
        self.path = path
        self._fold = fold
        self._schema = documented(product_columns(fold, comments))
        self._plain = without_comments(self._schema)

    def write_once(self, emitted: pa.Table, app_id: str, batch_id: int, mark: str) -> None:
        """Write what a batch emitted in one commit, unless `app_id` has written this batch before."""
        write = self._append if self._fold.output_mode == "append" else self._merge
        write_once(self.path, app_id, batch_id, partial(write, emitted), _metadata(mark))

    def replace_rows(self, rows: pa.Table, mark: str) -> None:
        """Make these the only rows of an update table, in one commit."""
        stored, metadata = self._stored(rows), _metadata(mark)
        despite_others(lambda: overwrite(delta_table(self.path), stored, EVERYTHING, metadata))

    def replace_range(
        self, outputs: Sequence[pa.Table], from_us: int | None, until_us: int | None, mark: str
    ) -> RangeChange:
        """Make those of `outputs` that were emitted from one instant and before another the only
        rows of an append table there. One commit; none when nothing would change. None: no bound.
        """
        tables = [self._stored(table) for table in outputs]
        rows = pa.concat_tables([self._plain.empty_table(), *tables])
        within = Range(EMITTED_AT, EMITTED_DATE, from_us, until_us)
        return replace_within(self.path, within, rows, _metadata(mark))

    def _append(self, emitted: pa.Table, table: DeltaTable, commit: CommitProperties) -> None:
        write_deltalake(table, self._stored(emitted), mode="append", commit_properties=commit)

    def _merge(self, emitted: pa.Table, table: DeltaTable, commit: CommitProperties) -> None:
        rows = self._stored(emitted).append_column(REMOVED, emitted[REMOVED])
        columns = {f"`{name}`": f"new.`{name}`" for name in self._schema.names}
        merge = table.merge(
            rows,
            predicate=same_key(self._fold),
            source_alias="new",
            target_alias="old",
            commit_properties=commit,
        )
        (
            merge.when_matched_delete(f"new.{REMOVED}")
            .when_matched_update(columns)
            .when_not_matched_insert(columns, predicate=f"NOT new.{REMOVED}")
            .execute()
        )

    def _stored(self, emitted: pa.Table) -> pa.Table:
        """Rows as the table has them."""
        at = emitted[EMITTED_AT_US].cast(INSTANT)
        rows = emitted.append_column(EMITTED_AT, at)
        rows = rows.append_column(EMITTED_DATE, at.cast(pa.date32()))
        return rows.select(self._schema.names).cast(self._plain)


def _metadata(mark: str) -> dict[str, str]:
    """What Spark's option `userMetadata` makes of it: `commitInfo.userMetadata` in the log."""
    return {"userMetadata": mark}


PLAIN = without_comments(documented(COLUMNS))


class ArrowRejected:
    """`RejectedTable` of engines.engine; rows are Arrow tables of its REJECTED."""

    def __init__(self, lake: Lake, stream: str) -> None:
        self.path = lake.rejected(stream)
        self._lake = lake
        self._stream = stream

    def append_once(self, rejected: pa.Table, app_id: str, batch_id: int) -> None:
        """Append what a batch rejected, unless `app_id` has written this batch before."""
        rows = _stored([rejected])

        def append(table: DeltaTable, commit: CommitProperties) -> None:
            write_deltalake(table, rows, mode="append", commit_properties=commit)

        ensure_table(self._lake, self._stream)
        write_once(self.path, app_id, batch_id, append)

    def summary(self, parts: Sequence[pa.Table], from_us: int | None = None) -> Summary | None:
        """What the calls from one instant on come to; None for none."""
        calls = [
            call
            for part in parts
            for call in part.to_pylist()
            if from_us is None or call["at_us"] >= from_us
        ]
        if not calls:
            return None
        events = sum(call["cause"] == "event" for call in calls)
        times_us = [call["at_us"] for call in calls]
        by_key = Counter(call["key"] for call in calls)
        most = sorted(by_key.items(), key=lambda item: (-item[1], item[0]))[:MOST_KEYS]
        first_us, last_us = min(times_us), max(times_us)
        return Summary(events, len(calls) - events, first_us, last_us, Counter(dict(most)))

    def replace_range(
        self, parts: Sequence[pa.Table], from_us: int | None, until_us: int | None
    ) -> RangeChange:
        """Make those of `parts` the only rows from one instant on and before another."""
        within = Range(AT, AT_DATE, from_us, until_us)
        rows = _stored(parts).filter(within.rows())
        ensure_table(self._lake, self._stream)
        return replace_within(self.path, within, rows, {"userMetadata": REPLACED})


def _stored(parts: Sequence[pa.Table]) -> pa.Table:
    """Rows as the table has them."""
    return pa.concat_tables([PLAIN.empty_table(), *map(_as_stored, parts)])


def _as_stored(rejected: pa.Table) -> pa.Table:
    at = rejected["at_us"].cast(INSTANT)
    rows = rejected.append_column(AT, at).append_column(AT_DATE, at.cast(pa.date32()))
    return rows.select(PLAIN.names).cast(PLAIN)
