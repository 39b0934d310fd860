"""Rejected calls written without a JVM: the table that `lake.rejected` writes with Spark."""

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from include.lake.columns import INSTANT, documented, without_comments
from include.lake.commits import write_once
from include.lake.paths import Lake
from include.lake.range_change import RangeChange
from include.lake.rejected_calls import (
    AT,
    AT_DATE,
    COLUMNS,
    MOST_KEYS,
    REPLACED,
    Summary,
    ensure_table,
)
from spark_jobs.tables.arrow_commits import Range, replace_within

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
