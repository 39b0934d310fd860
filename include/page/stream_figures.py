"""A stream through time: its runs, checkpoint, settings, savepoints, coverage and biggest keys.

As the overview's lines, read from the lake without a JVM, and for a page: what cannot be read is
said in `troubles`, and the rest is there.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import groupby
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc

from include.care.state_report import BIGGEST_KEYS, shown_rows, value_bytes
from include.coverage.judge import Coverage, Span
from include.coverage.table_coverage import findings_on, table_coverage
from include.lake.columns import INSTANT
from include.lake.delta_log import first_line
from include.lake.errors import wrong_argument
from include.lake.findings import Finding
from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.page.key_rows import text_of_key
from include.page.overview import (
    READ_ERRORS,
    WINDOW_DAYS,
    Day,
    StreamLine,
    bare_line,
    days_of,
    line_of,
    open_findings,
    still_open,
)
from include.page.recorded import Recorded, Row
from include.savepoints.manifest import Savepoint, newest_savepoint, savepoints_of, states_in
from include.settings import Stream
from include.stream_definition import load_definition

COLUMNS = {
    "key": pc.field("key"),
    "state": pc.field("state"),
    "changed_at": pc.field("changed_at_us").cast(INSTANT),
    "timeout_at": pc.field("timeout_at_us").cast(INSTANT),
}


@dataclass(frozen=True)
class BigKey:
    """A key, and what its state comes to as Arrow holds it."""

    key: str
    bytes: int
    changed_at: datetime | None
    timeout_at: datetime | None
    state: str | None  # the beginning of a long one; None: only what was seen, or timers, is kept


@dataclass(frozen=True)
class BigKeys:
    """The biggest keys as of an instant of the stream's clock, the biggest first."""

    until: datetime
    keys: tuple[BigKey, ...]


def biggest_keys(lake: Lake, stream: str) -> BigKeys | None:
    """Those of the newest savepoint of `stream`; None before there is one."""
    newest = newest_savepoint(lake, stream)
    return None if newest is None else BigKeys(newest.until, _biggest(lake, newest))


# A savepoint stays what it is, and may have many millions of keys.
@lru_cache(maxsize=100)
def _biggest(lake: Lake, savepoint: Savepoint) -> tuple[BigKey, ...]:
    biggest: list[BigKey] = []
    for batch in states_in(lake, savepoint).to_batches(columns=COLUMNS):
        biggest = sorted([*biggest, *_of_batch(batch)], key=lambda k: (-k.bytes, k.key))
        del biggest[BIGGEST_KEYS:]
    return tuple(biggest)


def _of_batch(rows: pa.RecordBatch) -> list[BigKey]:
    if not rows.num_rows:
        return []
    sizes = value_bytes(rows.select(["key", "state"]).to_struct_array())
    sized = pa.table({"bytes": sizes, "row": range(rows.num_rows)})
    order = [("bytes", "descending"), ("row", "ascending")]
    chosen = pc.select_k_unstable(sized, BIGGEST_KEYS, order)
    biggest = shown_rows(pa.Table.from_batches([rows.take(chosen)]))
    return [
        BigKey(bytes=int(sizes[at.as_py()]), **row | {"key": text_of_key(row["key"])})
        for at, row in zip(chosen, biggest, strict=True)
    ]


RUN_SERIES = (
    "run_id",
    "job",
    "started_at",
    "ended_at",
    "outcome",
    "error",
    "rows_in",
    "rows_folded",
    "rows_late",
    "rows_pending",
    "rows_out",
    "until",
    "jvm_rss_bytes",
    "python_rss_bytes",
    "jvm_start_seconds",
)
BATCH_SERIES = ("run_id", "durations_ms", "rows_in", "rows_in_most", "buckets_touched")
DRAINS = ("run_stream", "compact_state")
# Of Spark's durations of a batch: what is planning, and what is bookkeeping of the position.
PLANNING = ("queryPlanning", "latestOffset", "getBatch")
POSITION = ("walCommit", "commitOffsets")
PARTS = ("around batches", "planning", "fold, store and tables", "position", "other")


@dataclass(frozen=True, kw_only=True)
class RunPoint:
    """A run of the stream, or a compaction; rows of None were not counted, as of one that failed."""

    run_id: str
    job: str
    started_at: datetime
    ended_at: datetime
    outcome: str
    error: str | None
    rows_in: int | None
    rows_folded: int | None
    rows_late: int | None
    rows_pending: int | None
    rows_out: int | None
    until: datetime | None
    rss_bytes: int
    parts: Mapping[str, float]  # seconds by PARTS: together the run's
    jvm_start_seconds: float | None = None  # before it; None: of another run's JVM, or not known
    bucket_skew: float | None = (
        None  # rows of the fullest bucket of a batch, of those touched the mean
    )

    @property
    def seconds(self) -> float:
        return (self.ended_at - self.started_at).total_seconds()

    @property
    def lag_seconds(self) -> float | None:
        """How far the table was behind when the run ended."""
        return None if self.until is None else (self.ended_at - self.until).total_seconds()


def read_runs(recorded: Recorded, stream: Stream) -> tuple[RunPoint, ...]:
    """The runs that ended in the window, in that order."""
    rows = recorded.in_window("runs", "ended_at", {"subject": stream.name}, columns=RUN_SERIES)
    drains = [row for row in rows if row["job"] in DRAINS]
    batches = _batches(recorded, stream, drains)
    return tuple(_run(row, batches[row["run_id"]]) for row in drains)


def _batches(
    recorded: Recorded, stream: Stream, runs: Sequence[Row]
) -> Mapping[str, Sequence[Row]]:
    """What is shown of each batch, by its run: Spark's durations, in milliseconds, and the rows of
    its buckets. The first run may have begun before the window."""
    began = min((run["started_at"] for run in runs), default=recorded.since)
    where = {"stream": stream.name}
    found: dict[str, list[Row]] = defaultdict(list)
    for row in recorded.in_window("batches", "committed_at", where, BATCH_SERIES, began):
        found[row["run_id"]].append(row)
    return found


def _run(row: Row, batches: Sequence[Row]) -> RunPoint:
    known = {name: row[name] for name in RUN_SERIES if name in RunPoint.__dataclass_fields__}
    seconds = (row["ended_at"] - row["started_at"]).total_seconds()
    rss = (row["jvm_rss_bytes"] or 0) + (row["python_rss_bytes"] or 0)
    # A killed run has left no durations.
    durations = [json.loads(batch["durations_ms"] or "{}") for batch in batches]
    return RunPoint(
        **known,
        rss_bytes=rss,
        parts=_parts(seconds, durations),
        bucket_skew=max(map(_bucket_skew, batches), default=None),
    )


def _bucket_skew(batch: Row) -> float:
    """1.0 where it has no rows, or of a release that did not count them."""
    if not batch["rows_in"] or not batch["rows_in_most"]:
        return 1.0
    return float(batch["rows_in_most"] * batch["buckets_touched"] / batch["rows_in"])


def _parts(seconds: float, batches: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """A run's seconds: Spark tells what its batches took, and the rest is the session, the record
    and a savepoint."""

    def sum_of(*names: str) -> float:
        return sum(batch.get(name, 0) for batch in batches for name in names) / 1_000

    whole = sum_of("triggerExecution")
    planning, work, position = sum_of(*PLANNING), sum_of("addBatch"), sum_of(*POSITION)
    other = max(whole - planning - work - position, 0.0)
    around = max(seconds - whole, 0.0)
    return dict(zip(PARTS, (around, planning, work, position, other), strict=True))


MOST_DAYS = 3_650
FIRST_YEAR = 2000  # nothing ran before, and MOST_DAYS earlier is still a date
DAY = timedelta(days=1)


class ShownTime(NamedTuple):
    """`length` before `until`, which is no part of it; None: all up to now."""

    length: timedelta
    until: datetime | None = None

    def begin(self, now: datetime) -> datetime:
        return self.end(now) - self.length

    def end(self, now: datetime) -> datetime:
        return self.until or now


def asked_time(now: datetime, days: int | None = None, until: str = "") -> ShownTime:
    """What a person has asked for; SettingsError for what is no date. One that is to come is now."""
    length = timedelta(days=WINDOW_DAYS if days is None else days)
    end = _midnight(until) if until else now
    return ShownTime(length, end if end < now else None)


def _midnight(text: str) -> datetime:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if day.year < FIRST_YEAR:
        raise wrong_argument(
            "until", f"until is {text!r}: give a date from {FIRST_YEAR} on, such as 2026-11-20"
        )
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def moves(time: ShownTime, now: datetime) -> Iterator[tuple[str, str]]:
    """Where one may go from here, as the query of an address: to as many days before or after."""
    days = time.length // DAY
    begin, end = time.begin(now), time.until
    before = begin.date() if end else begin.date() + DAY
    if before.year >= FIRST_YEAR:
        yield "earlier", urlencode({"days": days, "until": before})
    if end is not None:
        after = {"until": (end + time.length).date()} if end + time.length < now else {}
        yield "later", urlencode({"days": days, **after})


SIZE_SERIES = (
    "measured_at",
    "occasion",
    "part",
    "operator",
    "partition",
    "store",
    "bytes",
    "files",
    "replay_versions",
    "replay_bytes",
)


@dataclass(frozen=True, kw_only=True)
class SizePoint:
    """The checkpoint as it was measured."""

    measured_at: datetime
    occasion: str
    bytes_by_part: Mapping[str, int]
    files: int
    replay_versions: int
    skew: float | None  # of the state: the largest partition, in times of the median


def read_sizes(recorded: Recorded, stream: Stream) -> dict[str, Any]:
    """Those of the window, and of the newest: partition, bytes, files."""
    where = {"stream": stream.name}
    rows = recorded.in_window("checkpoint_sizes", "measured_at", where, columns=SIZE_SERIES)
    measured = [list(group) for _, group in groupby(rows, lambda row: row["measured_at"])]
    newest = measured[-1] if measured else []
    return {"sizes": tuple(map(_size, measured)), "partitions": _partitions(newest)}


def _size(rows: Sequence[Row]) -> SizePoint:
    by_part: dict[str, int] = defaultdict(int)
    for row in rows:
        by_part[row["part"]] += row["bytes"]
    return SizePoint(
        measured_at=rows[0]["measured_at"],
        occasion=rows[0]["occasion"],
        bytes_by_part=by_part,
        files=sum(row["files"] for row in rows),
        replay_versions=max((row["replay_versions"] or 0 for row in rows), default=0),
        skew=max(_skews(rows), default=None),
    )


def _skews(rows: Sequence[Row]) -> Iterator[float]:
    """Of each store of an operator."""
    by_store: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row in rows:
        if row["partition"] is not None:
            by_store[row["operator"], row["store"]].append(row["bytes"])
    for sizes in by_store.values():
        if middle := median(sizes):
            yield max(sizes) / middle


def _partitions(newest: Sequence[Row]) -> tuple[Row, ...]:
    stores = [row for row in newest if row["partition"] is not None]
    return tuple(sorted(stores, key=lambda row: (row["operator"], row["partition"])))


NOT_CHECKED: Row = dict.fromkeys(
    ("is_met", "checked_at", "job", "batch_id", "rows", "rows_failing", "examples")
)


@dataclass(frozen=True, kw_only=True)
class StreamFigures:
    """All that the page of a stream shows. Rows of `ops` are as their columns say."""

    line: StreamLine
    title: str
    now: datetime
    time: ShownTime  # what is counted, drawn and listed; all else is as of `now`
    limits: Mapping[str, float | None]
    key_names: str  # what its keys are called
    runs: tuple[RunPoint, ...] = ()
    sizes: tuple[SizePoint, ...] = ()
    partitions: tuple[Row, ...] = ()  # of the newest measurement: partition, bytes, files
    savepoints: tuple[Savepoint, ...] = ()  # the newest first
    profiles: tuple[Row, ...] = ()  # of RocksDB, the newest first
    recomputes: tuple[Row, ...] = ()  # the newest first
    checks: tuple[
        Row, ...
    ] = ()  # what each of the stream's said last; nothing yet: its words alone
    days: tuple[Day, ...] = ()
    is_complete: bool = False  # until some instant: before that nothing can be right
    wrong: tuple[Span, ...] = ()  # where the table is not right
    advice: tuple[Finding, ...] = ()  # what to do about that, with the backfill to enter
    findings: tuple[Row, ...] = ()  # open ones, the worst first
    keys: BigKeys | None = None
    troubles: Mapping[str, str] = field(default_factory=dict)  # by part, why it is not there

    @property
    def begin(self) -> datetime:
        return self.time.begin(self.now)

    @property
    def end(self) -> datetime:
        return self.time.end(self.now)


def read_stream(
    lake: Lake, stream: Stream, now: datetime, window: timedelta, until: datetime | None = None
) -> StreamFigures:
    """The figures of `stream` in the window that ends at `until`; without it, at `now`."""
    time = ShownTime(window, until)
    recorded = Recorded(lake, time.begin(now), stream, until=until)
    parts: dict[str, Callable[[], Any]] = {
        "runs": lambda: read_runs(recorded, stream),
        "measured": lambda: read_sizes(recorded, stream),
        "savepoints": lambda: tuple(reversed(savepoints_of(lake, stream.name))),
        "profiles": lambda: _rows(lake, "rocksdb_profiles", stream, "profile"),
        "recomputes": lambda: _rows(lake, "intervals", stream, "recomputed_at"),
        "checks": lambda: _checks(recorded, stream),
        "findings": lambda: tuple(open_findings(recorded, stream)),
        "keys": lambda: biggest_keys(lake, stream.name),
        "coverage": lambda: _coverage(recorded, stream, now, time=time),
    }
    read, troubles = _each(parts)
    if (judged := read.pop("coverage", None)) and "findings" in read:
        read["findings"] = tuple(still_open(read["findings"], judged["advice"]))
    return StreamFigures(
        line=_line(recorded, stream, now),
        title=stream.title or stream.name,
        now=now,
        time=time,
        limits=vars(stream.limits),
        key_names=load_definition(stream).fold.keys.text(),
        troubles=troubles,
        **read.pop("measured", {}),
        **read,
        **(judged or {}),
    )


def _line(recorded: Recorded, stream: Stream, now: datetime) -> StreamLine:
    try:
        return line_of(recorded, stream, now)
    except READ_ERRORS as error:
        return bare_line(stream, now, f"its figures cannot be read: {first_line(error)}")


def _each(parts: Mapping[str, Callable[[], Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """What can be read of `parts`, and what of the others is in the way."""
    read, troubles = {}, {}
    for name, part in parts.items():
        try:
            read[name] = part()
        except READ_ERRORS as error:
            troubles[name] = f"{name} cannot be read: {first_line(error)}"
    return read, troubles


def _rows(lake: Lake, name: str, stream: Stream, by: str) -> tuple[Row, ...]:
    rows = read_ops(lake, name, {"stream": stream.name}).to_pylist()
    return tuple(sorted(rows, key=lambda row: row[by], reverse=True))


def _checks(recorded: Recorded, stream: Stream) -> tuple[Row, ...]:
    """The newest verdict of each check that is declared now, by its condition of now."""
    if not stream.checks:
        return ()
    rows = recorded.in_window("data_checks", "checked_at", {"stream": stream.name})
    newest = {(row["check_name"], row["condition"]): row for row in rows}
    return tuple(
        {**newest.get((check.name, check.condition), NOT_CHECKED), "check_name": check.name}
        | {"condition": check.condition, "severity": check.severity}
        for check in stream.checks
    )


def _coverage(recorded: Recorded, stream: Stream, now: datetime, time: ShownTime) -> dict[str, Any]:
    """Where the table is right: also compared with its own log, as a check does."""
    row = read_generations(recorded.lake, stream.name).current
    if row is None:
        return {}
    judged = table_coverage(recorded.lake, stream)
    return {
        "days": _days(judged.coverage, now, time),
        "is_complete": judged.coverage.until_us is not None,
        "wrong": judged.coverage.wrong,
        "advice": tuple(findings_on(recorded.lake, stream, judged, row=row)),
    }


def _days(coverage: Coverage, now: datetime, time: ShownTime) -> tuple[Day, ...]:
    end = (
        time.until - timedelta(microseconds=1) if time.until else now
    )  # that midnight is of the next day
    return days_of(coverage, end, max(time.length // timedelta(days=1), 1))
