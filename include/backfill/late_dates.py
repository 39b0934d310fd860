"""Event dates with late rows that no recompute has taken in yet, read without a JVM.

A late row is in bronze, not in the table. A recompute makes an interval of the table right,
a reseed all that follows; each for the rows that were ingested before it. Which interval a
late row belongs to is told by its own instant; how far it is felt is `first_stale`'s matter.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include.findings import Finding
from include.generations import GenerationRow, current_row
from include.lake import Lake, LakeError, dataset_of
from include.ops import read_ops
from include.streams import Stream
from include.text_table import first_names

IN_PROCESSING_TIME = "ProcessingTimeTimeout"
COLUMNS = ["event_date", "event_time", "arrival_watermark", "ingested_at", "is_clock"]
GROUP = ["event_date", "ingested_at"]
BEGINNING = datetime.min.replace(tzinfo=UTC)
FOR_EVER = datetime.max.replace(tzinfo=UTC)
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
            # An update table is written whole, of states whose base held all rows before it.
            start = row["start"] if output_mode == "append" else None
            covers.append(Cover(start, None, row["bronze_ingested_at"]))
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
    scanner = dataset_of(path).scanner(COLUMNS, filter=wanted)
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
    open_: dict[date, list[LateRows]] = {}
    for group, stale_from in _first_uncovered(late, covers):
        if stale_from <= group.last:
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
    return min((stale_from for _, stale_from in _first_uncovered(late, covers)), default=None)


def _first_uncovered(
    late: Iterable[LateRows], covers: Iterable[Cover]
) -> Iterator[tuple[LateRows, datetime]]:
    """Each group with the first instant at or after its first that no cover of its rows holds.

    Groups that are covered for ever are left out. From the newest commit to the oldest, so that
    each cover is added once, and holds for all groups that follow.
    """
    waiting = sorted(covers, key=lambda cover: cover.ingested_at)
    covered = _Covered()
    for group in sorted(late, key=lambda group: group.ingested_at, reverse=True):
        while waiting and waiting[-1].ingested_at >= group.ingested_at:
            covered.add(waiting.pop())
        instant = covered.end_from(group.first)
        if instant != FOR_EVER:
            yield group, instant


class _Covered:
    """The union of intervals, as its parts: in order, and none touches the next."""

    def __init__(self) -> None:
        self._starts: list[datetime] = []
        self._ends: list[datetime] = []

    def add(self, cover: Cover) -> None:
        start, end = cover.start or BEGINNING, cover.until or FOR_EVER
        first, after = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < after:  # parts that it touches become one with it
            start = min(start, self._starts[first])
            end = max(end, self._ends[after - 1])
        self._starts[first:after] = [start]
        self._ends[first:after] = [end]

    def end_from(self, instant: datetime) -> datetime:
        """The first instant from this one on that is not covered; FOR_EVER when there is none."""
        last = bisect_right(self._starts, instant) - 1
        return instant if last < 0 else max(instant, self._ends[last])


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
    promote = promote_text(stream)
    if output_mode != "append":
        return f"{promote} takes them into the table and the live state"
    return (
        f"backfill the Dag stream_{stream.name}: {_ranges_text(dates)} (UTC), Reprocess "
        "Behavior: All Runs. Runs for these dates exist: with Missing Runs nothing would be "
        f"done. Later rows and the live state take them in only by {promote}"
    )


def promote_text(stream: Stream) -> str:
    """The ways to take late rows into the live state."""
    return (
        f"`make reseed STREAM={stream.name} APPLY=1` or a backfill with the parameter promote "
        "(tick Override parameters on existing runs)"
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
