"""The product, written without a JVM: the commits that `product.py` makes with Spark, by delta-rs.

Same columns, comments, properties and partitions, and the same way to write a batch once: either
may go on with a table that the other began. For small batches, whose rows fit in memory.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from include.fold.definition import EMITTED_AT, EMITTED_AT_US, EMITTED_DATE, REMOVED, KeyedFold
from include.fold.product_table import product_columns, same_key
from include.lake.columns import INSTANT, documented, without_comments
from include.lake.commits import write_once
from include.lake.paths import Lake
from include.lake.stream_result import AT, AT_DATE, COLUMNS, MOST_KEYS, Summary, ensure_table


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
        # What Spark's option `userMetadata` makes of it: `commitInfo.userMetadata` in the log.
        metadata = {"userMetadata": mark}
        write_once(self.path, app_id, batch_id, partial(write, emitted), metadata)

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


PLAIN = without_comments(documented(COLUMNS))


class ArrowRejected:
    """`RejectedTable` of engines.engine; rows are Arrow tables of its REJECTED."""

    def __init__(self, lake: Lake, stream: str) -> None:
        self.path = lake.rejected(stream)
        self._lake = lake
        self._stream = stream

    def append_once(self, rejected: pa.Table, app_id: str, batch_id: int) -> None:
        """Append what a batch rejected, unless `app_id` has written this batch before."""
        rows = stored([rejected])

        def append(table: DeltaTable, commit: CommitProperties) -> None:
            write_deltalake(table, rows, mode="append", commit_properties=commit)

        ensure_table(self._lake, self._stream)
        write_once(self.path, app_id, batch_id, append)

    def summary(self, parts: Sequence[pa.Table]) -> Summary | None:
        """What the calls come to; None for none."""
        calls = [call for part in parts for call in part.to_pylist()]
        if not calls:
            return None
        events = sum(call["cause"] == "event" for call in calls)
        times_us = [call["at_us"] for call in calls]
        by_key = Counter(call["key"] for call in calls)
        most = sorted(by_key.items(), key=lambda item: (-item[1], item[0]))[:MOST_KEYS]
        first_us, last_us = min(times_us), max(times_us)
        return Summary(events, len(calls) - events, first_us, last_us, Counter(dict(most)))


def stored(parts: Sequence[pa.Table]) -> pa.Table:
    """Rows as the table has them."""
    return pa.concat_tables([PLAIN.empty_table(), *map(_as_stored, parts)])


def _as_stored(rejected: pa.Table) -> pa.Table:
    at = rejected["at_us"].cast(INSTANT)
    rows = rejected.append_column(AT, at).append_column(AT_DATE, at.cast(pa.date32()))
    return rows.select(PLAIN.names).cast(PLAIN)
