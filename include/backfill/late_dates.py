"""Event dates with late rows that no recompute has taken in yet, read without a JVM.

A late row is in bronze, not in the table. A recompute makes an interval of the table right,
a reseed all that follows; each for the rows that were ingested before it. Which interval a
late row belongs to is told by its own instant; how far it is felt is `first_stale`'s matter.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from include.findings import Finding
from include.generations import GenerationRow, current_row
from include.lake import Lake, LakeError
from include.ops import read_ops
from include.streams import Stream
from include.text_table import first_names

IN_PROCESSING_TIME = "ProcessingTimeTimeout"
COLUMNS = ["event_date", "event_time", "arrival_watermark", "ingested_at", "is_clock"]
GROUP = ["event_date", "ingested_at"]
BEGINNING = datetime.min.replace(tzinfo=UTC)
ONE_DAY = timedelta(days=1)
SHOWN = 5


@dataclass(frozen=True)
class Cover:
    """The table is right from `start` (None: its beginning) to before `until` (None: for ever),
    as far as rows of bronze up to `ingested_at` go."""

    start: datetime | None
    until: datetime | None
    ingested_at: datetime


@dataclass(frozen=True)
class LateRows:
    """The late rows that one commit brought for one event date; the last is at `last`."""

    date: date
    ingested_at: datetime
    rows: int
    first: datetime
    last: datetime


@dataclass(frozen=True)
class LateDate:
    """The late rows of one event date (UTC) that no cover has taken in."""

    date: date
    rows: int
    first: datetime
    last: datetime


def covers_of(lake: Lake, stream_name: str, output_mode: str) -> list[Cover]:
    """What recomputes and reseeds made right; of an update table, what reseeds did."""
    covers = []
    for row in read_ops(lake, "intervals", {"stream": stream_name}).to_pylist():
        if row["kind"] == "reseed":
            covers.append(Cover(row["start"], None, row["bronze_ingested_at"]))
        elif output_mode == "append":
            covers.append(Cover(row["start"], row["until"], row["bronze_ingested_at"]))
    return covers


def late_rows(lake: Lake, stream: Stream) -> list[LateRows]:
    """All late rows of the stream's bronze, by event date and commit.

    Only dates that a live run found late rows in are read. Rows before the initial state are
    left out: it stands for them, late or not. LakeError when bronze is gone.
    """
    generation = current_row(lake, stream.name) or {}
    batches = read_ops(lake, "batches", {"stream": stream.name}).to_pylist()
    batches = [batch for batch in batches if batch["rows_late"]]
    if not batches or generation.get("timeout") == IN_PROCESSING_TIME:
        return []
    late = _is_late(stream, generation)
    parts = [_grouped(rows.filter(late)) for rows in _rows_of_dates(lake, stream, batches)]
    if not parts:
        return []
    found = pa.concat_tables(parts).group_by(GROUP)
    whole = found.aggregate([("rows", "sum"), ("first", "min"), ("last", "max")])
    return sorted(
        (LateRows(*row.values()) for row in whole.to_pylist()),
        key=lambda group: (group.date, group.ingested_at),
    )


def _is_late(stream: Stream, generation: GenerationRow) -> pc.Expression:
    delay = pa.scalar(stream.watermark_delay, pa.duration("us"))
    late = pc.field("event_time") <= pc.field("arrival_watermark") - delay
    if as_of := generation.get("initial_as_of"):
        late &= pc.field("event_time") >= pa.scalar(as_of)
    return late & ~pc.field("is_clock")


def _rows_of_dates(
    lake: Lake, stream: Stream, batches: Sequence[Mapping[str, Any]]
) -> Iterator[pa.Table]:
    path = lake.bronze(stream.source)
    if not lake.is_delta_table(path):
        raise LakeError(f"no bronze table at {path}, but stream {stream.name} has read from it")
    # Of Delta's statistics only those of dates are exact: instants are cut to milliseconds.
    wanted = reduce(or_, (_dates_between(batch) for batch in batches))
    scanner = DeltaTable(path).to_pyarrow_dataset().scanner(COLUMNS, filter=wanted)
    return (pa.Table.from_batches([batch]) for batch in scanner.to_batches())


def _dates_between(batch: Mapping[str, Any]) -> pc.Expression:
    if batch["late_from"] is None:  # an early release counted late rows, not when they were
        return pc.scalar(True)
    event_date = pc.field("event_date")
    first, last = (pa.scalar(batch[end].date()) for end in ("late_from", "late_to"))
    return (event_date >= first) & (event_date <= last)


def _grouped(rows: pa.Table) -> pa.Table:
    aggregates = [("event_time", "count"), ("event_time", "min"), ("event_time", "max")]
    found = rows.group_by(GROUP).aggregate(aggregates)
    names = [f"event_time_{function}" for _, function in aggregates]
    return found.select([*GROUP, *names]).rename_columns([*GROUP, "rows", "first", "last"])


def dates_to_recompute(late: Iterable[LateRows], covers: Iterable[Cover]) -> list[LateDate]:
    """The event dates, in order, with late rows that lie outside of all covers made after them.

    Rows of a date that came in one commit count as one: all of them, or none.
    """
    by_start = _by_start(covers)
    open_: dict[date, list[LateRows]] = {}
    for group in late:
        stale_from = _first_uncovered(group, by_start)
        if stale_from is not None and stale_from <= group.last:
            open_.setdefault(group.date, []).append(group)
    return [_late_date(day, groups) for day, groups in sorted(open_.items())]


def _late_date(day: date, groups: Sequence[LateRows]) -> LateDate:
    return LateDate(
        day,
        sum(group.rows for group in groups),
        min(group.first for group in groups),
        max(group.last for group in groups),
    )


def first_stale(late: Iterable[LateRows], covers: Iterable[Cover]) -> datetime | None:
    """The first instant from which on the table may lack the effect of a late row; None: never.

    A state remembers, so a row may be felt from its own instant on for ever, but for covers
    made after it.
    """
    by_start = _by_start(covers)
    stale: datetime | None = None
    for group in sorted(late, key=lambda group: group.first):
        if stale is not None and group.first >= stale:
            break  # no later row is felt before its own instant
        uncovered = _first_uncovered(group, by_start)
        if uncovered is not None and (stale is None or uncovered < stale):
            stale = uncovered
    return stale


def _by_start(covers: Iterable[Cover]) -> list[Cover]:
    return sorted(covers, key=lambda cover: cover.start or BEGINNING)


def _first_uncovered(group: LateRows, by_start: Sequence[Cover]) -> datetime | None:
    """The first instant at or after the group's first that no cover of its rows holds."""
    instant = group.first
    for cover in by_start:
        if cover.start is not None and cover.start > instant:
            break
        if cover.ingested_at >= group.ingested_at:
            if cover.until is None:
                return None
            instant = max(instant, cover.until)
    return instant


def late_finding(stream: Stream, output_mode: str, dates: Sequence[LateDate]) -> Finding | None:
    """Asks for the recompute of `dates`, in the words of Airflow's dialog; None without any."""
    if not dates:
        return None
    rows = sum(late.rows for late in dates)
    names = first_names([f"{late.date:%F}" for late in dates], SHOWN)
    return Finding(
        finding="late_rows_not_recomputed",
        severity="warning",
        count=rows,
        event_time_from=min(late.first for late in dates),
        event_time_to=max(late.last for late in dates),
        detail=f"Late rows ({rows:,}) of {names} are in bronze, and the table was computed "
        "without them",
        action=_action(stream, output_mode, dates),
    )


def _action(stream: Stream, output_mode: str, dates: Sequence[LateDate]) -> str:
    promote = f"`make reseed STREAM={stream.name} APPLY=1` or a backfill with the parameter promote"
    if output_mode != "append":
        return f"{promote} takes them into the table and the live state"
    return (
        f"backfill the Dag stream_{stream.name}: {_ranges_text(dates)} (UTC), Reprocess "
        "Behavior: All Runs. Runs for these dates exist: with Missing Runs nothing would be "
        f"done. Later rows and the live state take them in only by {promote}"
    )


def _ranges_text(dates: Sequence[LateDate]) -> str:
    ranges: list[tuple[date, date]] = []
    for late in sorted(dates, key=lambda late: late.date):
        if ranges and late.date - ranges[-1][1] <= ONE_DAY:
            ranges[-1] = (ranges[-1][0], late.date)
        else:
            ranges.append((late.date, late.date))
    texts = [f"From {first:%F} 00:00, To {last:%F} 23:59" for first, last in ranges[:SHOWN]]
    more = len(ranges) - SHOWN
    return "; then ".join(texts) + (f"; and {more} more" if more > 0 else "")
