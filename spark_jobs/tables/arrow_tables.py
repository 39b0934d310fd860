"""The product, written without a JVM: the commits that `lake.tables` makes with Spark, by delta-rs.

Same columns, comments, properties and partitions, and the same way to write a batch once: either
may go on with a table that the other began. For small batches, whose rows fit in memory.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from include.fold.definition import (
    EMITTED_AT,
    EMITTED_AT_US,
    EMITTED_DATE,
    REMOVED,
    KeyedFold,
)
from include.fold.product_table import product_columns, same_key
from include.lake.columns import INSTANT, documented, without_comments
from include.lake.commits import write_once
from include.lake.open_delta import delta_table
from include.lake.ops import despite_others
from include.lake.range_change import RangeChange
from spark_jobs.tables.arrow_commits import EVERYTHING, Range, overwrite, replace_within


class ArrowProduct:
    """The Delta table of one stream. Append: all outputs. Update: the latest row per key.

    Rows are Arrow tables of `engines.schemas.output_schema(fold)`. `mark` is what a commit says
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
