"""The product, written without a JVM: the commits that `product.py` makes with Spark, by delta-rs.

Same columns, comments, properties and partitions, and the same way to write a batch once: either
may go on with a table that the other began. For small batches, whose rows fit in memory.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from include.fold.definition import EMITTED_AT, EMITTED_AT_US, EMITTED_DATE, REMOVED, KeyedFold
from include.fold.product_table import product_columns, same_key
from include.fold.schemas import output_schema
from include.lake.columns import INSTANT, documented, without_comments
from include.lake.commits import write_once
from include.lake.delta_log import delta_table
from include.lake.ops import despite_others
from include.lake.paths import Lake
from include.lake.stream_result import (
    AT,
    AT_DATE,
    COLUMNS,
    MOST_KEYS,
    Summary,
    has_batch,
    next_record,
)
from include.lake.table import USER_METADATA, add_files, stage


def tell(path: str, record: str) -> None:
    """Commit a record to the table at `path`, without a row."""
    commit = CommitProperties(custom_metadata={USER_METADATA: record})
    despite_others(lambda: add_files(delta_table(path), [], commit))


class ArrowProduct:
    """The Delta table of one stream. Append: all outputs. Update: the latest row per key.

    Rows are Arrow tables of `include.fold.schemas.output_schema(fold)`. `record` is the text of the
    record that a commit carries.
    """

    def __init__(self, path: str, fold: KeyedFold, comments: Mapping[str, str]) -> None:
        self.path = path
        self._fold = fold
        self._schema = documented(product_columns(fold, comments))
        self._plain = without_comments(self._schema)

    def write_once(self, emitted: pa.Table | None, app_id: str, batch_id: int, record: str) -> None:
        """Commit a batch with what it emitted, unless `app_id` has written this batch before."""
        rows = output_schema(self._fold).empty_table() if emitted is None else emitted
        is_append = self._fold.output_mode == "append" or not rows.num_rows
        write = self._append if is_append else self._merge
        write_once(self.path, app_id, batch_id, partial(write, rows), {USER_METADATA: record})

    def _append(self, emitted: pa.Table, table: DeltaTable, commit: CommitProperties) -> None:
        by = EMITTED_DATE if EMITTED_DATE in self._plain.names else None
        add_files(table, stage(self.path, self._stored(emitted), self._plain, by), commit)

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
        before = table.version()
        (
            merge.when_matched_delete(f"new.{REMOVED}")
            .when_matched_update(columns)
            .when_not_matched_insert(columns, predicate=f"NOT new.{REMOVED}")
            .execute()
        )
        if table.version() == before:  # nothing changed, and delta-rs then makes no commit
            add_files(table, [], commit)

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
            add_files(table, stage(self.path, rows, PLAIN, AT_DATE), commit)

        if not has_batch(self._lake, self._stream, app_id, batch_id):
            record = next_record(self._lake, self._stream, app=app_id, batch=batch_id)
            commit = CommitProperties(custom_metadata={USER_METADATA: record})
            despite_others(lambda: append(delta_table(self.path), commit))

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
