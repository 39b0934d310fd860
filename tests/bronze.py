"""Bronze for tests: events stamped as ingestion stamps them, without a file or a JVM.

`commits` says which events arrive together. The oracle of admission is here, in plain
Python: `BronzeRow` is what the local engine takes, `append_commit` what the others read.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from include.lake import Lake
from spark_jobs.engines.local import BronzeRow
from spark_jobs.engines.schemas import ARROW_TYPES
from spark_jobs.fold.definition import EVENT_TIME_US, KeyedFold

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INSTANT = pa.timestamp("us", tz="UTC")


def event_time_us(event: Any) -> int:
    return event.event_time_us


def stamp(commits: Sequence[Sequence[Any]], before_us: int | None = None) -> list[list[BronzeRow]]:
    """Each commit's events with the watermarks that ingestion would write."""
    stamped = []
    for events in commits:
        newest = max(event_time_us(event) for event in events) // 1000 * 1000
        after = newest if before_us is None else max(newest, before_us)
        stamped.append([BronzeRow(e, event_time_us(e), before_us, after) for e in events])
        before_us = after
    return stamped


def append_commit(lake: Lake, source: str, fold: KeyedFold, rows: Sequence[BronzeRow]) -> None:
    """One commit of bronze, with the columns that streams read."""
    columns = {
        column.name: pa.array(
            [getattr(row.event, column.name) for row in rows], ARROW_TYPES[column.kind]
        )
        for column in fold.event_columns
        if column.name != EVENT_TIME_US
    }
    times = [row.time_us for row in rows]
    columns |= {
        "event_time": pa.array(times, INSTANT),
        "event_date": pa.array([(EPOCH + timedelta(microseconds=t)).date() for t in times]),
        "arrival_watermark": pa.array([row.arrival_us for row in rows], INSTANT),
        "commit_watermark": pa.array([row.commit_us for row in rows], INSTANT),
        "is_clock": pa.array([False] * len(rows)),
    }
    write_deltalake(lake.bronze(source), pa.table(columns), mode="append")
