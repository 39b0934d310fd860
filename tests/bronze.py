"""Bronze for tests: events stamped as ingestion stamps them, without a file or a JVM.

`commits` says which events arrive together. The oracle of admission is here, in plain
Python: a `StampedRow` is what the local engine takes, `append_commit` writes what the others read.
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

from include.fold.arrow_values import encode
from include.fold.definition import EVENT_TIME_US, INGESTED_AT_US, KeyedFold
from include.fold.testing.cases import Happened
from include.ingest.ingest_log import Ingestion
from include.ingest.parse_files import bronze_schema
from include.ingest.watermark import SourceWatermark
from include.lake.columns import ARROW_TYPES
from include.lake.paths import Lake
from include.lake.table import RECORD
from include.registry import all_sources

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INSTANT = pa.timestamp("us", tz="UTC")
# When the first commit is ingested, and each later one: after all events of our tests.
FIRST_INGESTED_US = 4_000_000_000_000_000
BETWEEN_COMMITS_US = 60_000_000


class ClockAt(NamedTuple):
    """A commit of one heartbeat, which says that the time is `time_us`."""

    time_us: int


class StampedRow(NamedTuple):
    """A row of bronze, as a fold over event time sees it. A heartbeat has no event."""

    event: Any
    time_us: int
    arrival_us: int | None  # None in a source's first commit
    commit_us: int
    ingested_us: int


Commit = Sequence[Any] | ClockAt  # of events, or of Happened


def stamp(
    commits: Sequence[Commit],
    ingested_us: Sequence[int] | None = None,
    group_of: Callable[[Any], Any] | None = None,
) -> list[list[StampedRow]]:
    """Each commit's rows with what ingestion would write; `ingested_us` is one instant a commit.

    With `group_of` an event the clock is the least of what the groups have reached; none is idle.
    """
    stamped, before_us = [], None
    reached_us: dict[Any, int] = {}
    for number, commit in enumerate(commits):
        rows = _happened(commit)
        newest = max(row.time_us for row in rows) // 1000 * 1000
        if group_of is not None:
            for row in rows:
                group = () if row.event is None else group_of(row.event)
                reached_us[group] = max(row.time_us // 1000 * 1000, reached_us.get(group, -(2**62)))
            newest = min(reached_us.values())
            reached_us.pop((), None)  # a heartbeat is heard once
        after = newest if before_us is None else max(newest, before_us)
        at = FIRST_INGESTED_US + number * BETWEEN_COMMITS_US
        if ingested_us is not None:
            at = ingested_us[number]
        stamped.append([StampedRow(*row, before_us, after, at) for row in rows])
        before_us = after
    return stamped


def _happened(commit: Commit) -> list[Happened]:
    if isinstance(commit, ClockAt):
        return [Happened(None, commit.time_us // 1000 * 1000)]
    return [e if isinstance(e, Happened) else Happened(e, e.event_time_us) for e in commit]


def rows_for(fold: KeyedFold, rows: Sequence[StampedRow]) -> list[StampedRow]:
    """The rows as `fold` sees them: in processing time its clock is when they were ingested."""
    if not fold.in_processing_time:
        return list(rows)
    return [row._replace(time_us=row.ingested_us, commit_us=row.ingested_us) for row in rows]


def append_commit(lake: Lake, source: str, fold: KeyedFold, rows: Sequence[StampedRow]) -> None:
    """One commit of bronze, with the columns that streams read."""
    columns = {
        column.name: encode(column.shape, [getattr(row.event, column.name, None) for row in rows])
        for column in fold.event_columns
        if column.name not in (EVENT_TIME_US, INGESTED_AT_US)
    }
    # A source has more columns than a stream reads. (Some tests have sources of their own.)
    for field in (
        field for known in all_sources() if known.name == source for field in known.fields
    ):
        columns.setdefault(field.name, pa.nulls(len(rows), ARROW_TYPES[field.type]))
    times = [row.time_us for row in rows]
    is_heartbeat = [row.event is None for row in rows]
    columns |= {
        "event_time": pa.array(times, INSTANT),
        "event_date": pa.array([(EPOCH + timedelta(microseconds=t)).date() for t in times]),
        "ingested_at": pa.array([row.ingested_us for row in rows], INSTANT),
        "watermark_before": pa.array([row.arrival_us for row in rows], INSTANT),
        "watermark_after": pa.array([row.commit_us for row in rows], INSTANT),
        "source_file": pa.array(
            [None if clock else "a.jsonl" for clock in is_heartbeat], pa.string()
        ),
        "is_heartbeat": pa.array(is_heartbeat),
    }
    known = next((each for each in all_sources() if each.name == source), None)
    if known is not None:
        before, after = (rows[0].arrival_us, None), (rows[0].commit_us, rows[0].ingested_us)
        ingestion = Ingestion(lake, known)
        schema = bronze_schema(known)
        ingestion.commit_rows(
            SourceWatermark(*before), SourceWatermark(*after), as_bronze(columns, schema)
        )
        return
    write_deltalake(
        lake.bronze(source), pa.table(columns), mode="append", commit_properties=of_ours()
    )


def as_bronze(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    """With all columns that bronze has."""
    count = len(columns["event_time"])
    given = {f.name: columns.get(f.name, pa.nulls(count, f.type)) for f in schema}
    return pa.table(given).cast(schema)


def of_ours(**record: Any) -> CommitProperties:
    """The properties of a commit that a job of ours could have made."""
    return CommitProperties(custom_metadata={"userMetadata": json.dumps({RECORD: record})})
