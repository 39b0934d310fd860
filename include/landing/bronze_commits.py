"""The clock of bronze as each commit moves it on, and the rows of a commit.

M is the largest `least(event_time, ingested_at)` ever committed, floored to milliseconds; or,
since a repair has set it back (clock_repair.py), of that and all that came after it. Of a source
with groups it is the least that these have reached (group_clock.py). Each commit to bronze stores
it twice on its rows, before and after the commit; whether a row is late follows from the former,
and must not depend on anything read later.

`ingested_at` is one instant for each commit, later than in every earlier commit even when
the machine's clock goes back: streams in processing time fold by it.
"""

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.admission import US_PER_MS
from include.lake.columns import INSTANT, documented, without_comments
from include.landing.bronze_tables import bronze_columns
from include.landing.group_clock import Groups, Newest, floor_to_ms, no_groups
from include.landing.group_rows import groups_of_rows
from include.landing.ingest_log import Clock, Ingestion
from include.settings import Source


def read_clock(ingestion: Ingestion) -> Clock:
    """The clock of bronze, by the ingest log; its groups by bronze's rows where they are others now."""
    source, clock = ingestion.source, ingestion.logged.clock(ingestion.source)
    empty = no_groups(source)
    if empty is None or clock.groups is not None:
        return clock
    groups = groups_of_rows(ingestion.bronze.delta, source, clock, empty, ingestion.logged.resets())
    return Clock(clock.watermark_us, clock.ingested_at_us, groups)


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


def bronze_rows(source: Source, events: pa.Table, before: Clock, after: Clock) -> pa.Table:
    """Events as bronze stores them, in a commit that takes its clock from `before` to `after`.

    `events` has `event_time_us`, `source_file`, null for a clock row, and columns of bronze; what it
    lacks of these is null.
    """
    times = events["event_time_us"].cast(pa.int64()).cast(INSTANT)
    columns = {name: events[name] for name in events.column_names} | {
        "event_time": times,
        "event_date": times.cast(pa.date32()),
        "ingested_at": _constant(after.ingested_at_us, len(times)),
        "arrival_watermark": _constant(before.watermark_us, len(times)),
        "commit_watermark": _constant(after.watermark_us, len(times)),
        "is_clock": pc.is_null(events["source_file"]),
    }
    schema, none = without_comments(documented(bronze_columns(source))), pa.nulls(len(times))
    return pa.table({name: columns.get(name, none) for name in schema.names}).cast(schema)


def clock_row(source: Source, before: Clock, after: Clock) -> pa.Table:
    """The one row that moves the clock of bronze to `after`."""
    events = pa.table({"event_time_us": [after.watermark_us], "source_file": pa.nulls(1)})
    return bronze_rows(source, events, before, after)


def _constant(micros: int | None, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(micros, pa.int64()), length).cast(INSTANT)
