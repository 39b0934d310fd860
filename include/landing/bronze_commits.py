"""Commits to a source's bronze by delta-rs, and the clock that each moves on.

M is the largest `least(event_time, ingested_at)` ever committed, floored to milliseconds; or,
since a repair has set it back (clock_repair.py), of that and all that came after it. Of a source
with groups it is the least that these have reached (group_clock.py). Each commit to bronze stores
it twice on its rows, before and after the commit; whether a row is late follows from the former,
and must not depend on anything read later.

`ingested_at` is one instant for each commit, later than in every earlier commit even when
the machine's clock goes back: streams in processing time fold by it.

As a commit is computed from the clock that it moves, no other may come between the two. A lease
sees to that on a local lake, and on no other; and Delta lets appends pass each other (a blind
append conflicts with nothing). So a commit is made as exactly the version after the one that was
open when the clock was read, or not at all: a log has each version once. When somebody else was
faster, the clock is read again. (Spark cannot do that: see spark_jobs/tables/landing.py.)
"""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, WriterProperties, write_deltalake

from include.fold.admission import US_PER_MS
from include.lake.columns import INSTANT, documented, without_comments
from include.lake.commits import transaction
from include.lake.delta_log import delta_table
from include.lake.ops import with_all_columns
from include.lake.paths import Lake, files_of
from include.landing.arrivals import origin_columns
from include.landing.bronze_tables import bronze_columns
from include.landing.clock import Clock, read_logged_clock
from include.landing.group_clock import Groups, Newest, floor_to_ms, no_groups
from include.landing.group_rows import groups_of_rows
from include.settings import Source

# Spark reads no part of a file that is less than one of these: with fewer rows in each, all cores
# read the file of a batch.
ROWS_A_GROUP = 50_000


def read_clock(lake: Lake, source: Source) -> Clock:
    """The clock of bronze: from the table's log, or from its rows where the log is silent."""
    logged = read_logged_clock(lake, source)
    if logged is None:
        logged = _clock_of_rows(lake.bronze(source.name))
    empty = no_groups(source)
    if empty is None or logged.groups is not None:
        return logged
    bronze = delta_table(lake.bronze(source.name))
    return logged._replace(groups=groups_of_rows(bronze, source, logged, empty))


def _clock_of_rows(bronze: str) -> Clock:
    # Of the newest commit: a repair sets M back, so an older one may have a larger.
    files = delta_table(bronze).to_pyarrow_dataset(filesystem=files_of(bronze))
    rows = files.to_table(columns=["commit_watermark", "ingested_at"])
    newest = rows.filter(pc.equal(rows["ingested_at"], pc.max(rows["ingested_at"])))
    return Clock(*(pc.max(newest[name].cast(pa.int64())).as_py() for name in newest.column_names))


def clock_after(
    before: Clock, newest_event_us: int, now_us: int, newest: Newest | None = None
) -> Clock:
    """The clock after a commit, at `now_us`, of events up to `newest_event_us`.

    `newest`: of each group, of a source that has some.
    """
    ingested_at_us = _ingested_at_after(before, now_us)
    if before.groups is not None:
        if newest is None:
            raise ValueError("a commit of a source with watermark_per must tell of its groups")
        return _by_groups(before, before.groups, newest, None, ingested_at_us)
    newest_us = floor_to_ms(min(newest_event_us, ingested_at_us))
    if before.watermark_us is not None:
        newest_us = max(newest_us, before.watermark_us)
    return Clock(newest_us, ingested_at_us)


def clock_after_row(before: Clock, target_us: int, now_us: int) -> Clock:
    """The clock after a clock row, at `now_us`, which says that all until `target_us` has landed.

    A group that is not idle is believed more than that: it holds M back.
    """
    if before.groups is None:
        return clock_after(before, target_us, now_us)
    ingested_at_us = _ingested_at_after(before, now_us)
    claimed_us = floor_to_ms(min(target_us, ingested_at_us))
    return _by_groups(before, before.groups, {}, claimed_us, ingested_at_us)


def _by_groups(
    before: Clock, known: Groups, newest: Newest, claimed_us: int | None, ingested_at_us: int
) -> Clock:
    groups = known.after(newest, before.ingested_at_us, ingested_at_us)
    reached = (before.watermark_us, groups.reached_us(claimed_us))
    watermark_us = max(us for us in reached if us is not None)
    return Clock(watermark_us, ingested_at_us, groups.without_passed(watermark_us))


def clock_set_back(before: Clock, to_us: int, now_us: int) -> Clock:
    """The clock after the commit, at `now_us`, of a repair that sets M back to `to_us`.

    `ingested_at` goes on: it says which rows came after.
    """
    at_us, to_us = _ingested_at_after(before, now_us), floor_to_ms(to_us)
    if before.groups is None:
        return Clock(to_us, at_us)
    groups = before.groups.after({}, before.ingested_at_us, at_us).set_back(to_us)
    return Clock(to_us, at_us, groups.without_passed(to_us))


def _ingested_at_after(before: Clock, now_us: int) -> int:
    """In whole milliseconds, as watermarks are."""
    if before.ingested_at_us is None:
        return floor_to_ms(now_us)
    return max(floor_to_ms(now_us), before.ingested_at_us + US_PER_MS)


def append_next(
    table: DeltaTable,
    rows: pa.Table,
    after: Clock,
    marks: Mapping[str, Any] | None = None,
    once: tuple[str, int] | None = None,
) -> None:
    """Commit rows as the version after `table`'s; CommitFailedError when that is taken.

    The commit says the clock `after` it, and `marks`, in the table's log; and `once`, the name and
    number under which it is made.
    """
    properties = CommitProperties(
        custom_metadata={"userMetadata": json.dumps(after.metadata() | dict(marks or {}))},
        max_commit_retries=0,
        app_transactions=None if once is None else [transaction(*once)],
    )
    write_deltalake(
        table,
        with_all_columns(rows, table),
        mode="append",
        commit_properties=properties,
        # Without its name there would be no compression at all.
        writer_properties=WriterProperties(compression="SNAPPY", max_row_group_size=ROWS_A_GROUP),
    )


def bronze_rows(source: Source, events: pa.Table, before: Clock, after: Clock) -> pa.Table:
    """Events as bronze stores them, in a commit that takes its clock from `before` to `after`.

    `events` has the source's fields, `event_time_us`, the columns of its
    origin, and `source_file`, null for a clock row.
    """
    times = events["event_time_us"].cast(pa.int64()).cast(INSTANT)
    schema = without_comments(documented(bronze_columns(source)))
    columns = {field.name: events[field.name] for field in source.fields} | {
        "event_time": times,
        "event_date": times.cast(pa.date32()),
        "ingested_at": _constant(after.ingested_at_us, len(times)),
        "arrival_watermark": _constant(before.watermark_us, len(times)),
        "commit_watermark": _constant(after.watermark_us, len(times)),
        "source_file": events["source_file"],
        "is_clock": pc.is_null(events["source_file"]),
    }
    for column in origin_columns(source):
        columns[column.name] = events[column.name]
    return pa.table(columns).cast(schema)


def clock_row(source: Source, before: Clock, after: Clock) -> pa.Table:
    """The one row that moves the clock of bronze to `after`."""
    names = [field.name for field in source.fields]
    names += [column.name for column in origin_columns(source)]
    none = {name: pa.nulls(1) for name in names}
    events = pa.table({**none, "event_time_us": [after.watermark_us], "source_file": pa.nulls(1)})
    return bronze_rows(source, events, before, after)


def _constant(micros: int | None, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(micros, pa.int64()), length).cast(INSTANT)
