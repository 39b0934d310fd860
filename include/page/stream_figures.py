"""A stream through time: its runs, checkpoint, settings, savepoints, coverage and biggest keys.

As the overview's lines, read from the lake without a JVM, and for a page: what cannot be read is
said in `troubles`, and the rest is there.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from include.care.last_drill import last_drill
from include.coverage.judge import Span
from include.coverage.table_coverage import findings_on, table_coverage
from include.lake.findings import Finding
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.page.big_keys import BigKeys, biggest_keys
from include.page.days import Day, days_of
from include.page.overview import (
    READ_ERRORS,
    StreamLine,
    bare_line,
    line_of,
    open_findings,
    still_open,
)
from include.page.recorded import Recorded, Row
from include.settings import Stream
from include.stream_definition import load_definition

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
# Of Spark's durations of a batch: what is planning, and what is bookkeeping of the position.
PLANNING = ("queryPlanning", "latestOffset", "getBatch")
POSITION = ("walCommit", "commitOffsets")
NOT_CHECKED: Row = dict.fromkeys(
    ("is_met", "checked_at", "job", "batch_id", "rows", "rows_failing", "examples")
)
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


@dataclass(frozen=True, kw_only=True)
class SizePoint:
    """The checkpoint as it was measured."""

    measured_at: datetime
    occasion: str
    bytes_by_part: Mapping[str, int]
    files: int
    replay_versions: int
    skew: float | None  # of the state: the largest partition, in times of the median


@dataclass(frozen=True, kw_only=True)
class StreamFigures:
    """All that the page of a stream shows. Rows of `ops` are as their columns say."""

    line: StreamLine
    title: str
    now: datetime
    window: timedelta
    limits: Mapping[str, float | None]
    key_names: str  # what its keys are called
    runs: tuple[RunPoint, ...] = ()
    sizes: tuple[SizePoint, ...] = ()
    partitions: tuple[Row, ...] = ()  # of the newest measurement: partition, bytes, files
    savepoints: tuple[Row, ...] = ()  # the newest first
    profiles: tuple[Row, ...] = ()  # of RocksDB, the newest first
    recomputes: tuple[Row, ...] = ()  # the newest first
    drill: Row | None = None  # the last recovery drill: COLUMNS of last_drill
    checks: tuple[
        Row, ...
    ] = ()  # what each of the stream's said last; nothing yet: its words alone
    days: tuple[Day, ...] = ()
    wrong: tuple[Span, ...] = ()  # where the table is not right
    advice: tuple[Finding, ...] = ()  # what to do about that, with the backfill to enter
    findings: tuple[Row, ...] = ()  # open ones, the worst first
    keys: BigKeys | None = None
    troubles: Mapping[str, str] = field(default_factory=dict)  # by part, why it is not there


def read_stream(lake: Lake, stream: Stream, now: datetime, window: timedelta) -> StreamFigures:
    """The figures of `stream` in the window that ends at `now`."""
    recorded = Recorded(lake, now - window, stream)
    parts: dict[str, Callable[[], Any]] = {
        "runs": lambda: _runs(recorded, stream),
        "measured": lambda: _measured(recorded, stream),
        "savepoints": lambda: _rows(lake, "savepoints", stream, "until"),
        "profiles": lambda: _rows(lake, "rocksdb_profiles", stream, "profile"),
        "recomputes": lambda: _rows(lake, "intervals", stream, "recomputed_at"),
        "drill": lambda: last_drill(lake, stream.name),
        "checks": lambda: _checks(recorded, stream),
        "findings": lambda: tuple(open_findings(recorded, stream)),
        "keys": lambda: biggest_keys(lake, stream.name),
        "coverage": lambda: _coverage(recorded, stream, now, window),
    }
    read, troubles = _each(parts)
    if (judged := read.pop("coverage", None)) and "findings" in read:
        read["findings"] = tuple(still_open(read["findings"], judged["advice"]))
    return StreamFigures(
        line=_line(recorded, stream, now),
        title=stream.title or stream.name,
        now=now,
        window=window,
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
        return bare_line(stream, now, f"its figures cannot be read: {error}")


def _each(parts: Mapping[str, Callable[[], Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """What can be read of `parts`, and what of the others is in the way."""
    read, troubles = {}, {}
    for name, part in parts.items():
        try:
            read[name] = part()
        except READ_ERRORS as error:
            troubles[name] = f"{name} cannot be read: {error}"
    return read, troubles


def _rows(lake: Lake, name: str, stream: Stream, by: str) -> tuple[Row, ...]:
    rows = read_ops(lake, name, {"stream": stream.name}).to_pylist()
    return tuple(sorted(rows, key=lambda row: row[by], reverse=True))


def _checks(recorded: Recorded, stream: Stream) -> tuple[Row, ...]:
    """The newest verdict of each check that is declared now, by its condition of now."""
    if not stream.checks:
        return ()
    where, since = {"stream": stream.name}, ("checked_at", recorded.since)
    rows = read_ops(recorded.lake, "data_checks", where, since=since).to_pylist()
    newest = {(row["check_name"], row["condition"]): row for row in sorted(rows, key=_checked_at)}
    return tuple(
        {**newest.get((check.name, check.condition), NOT_CHECKED), "check_name": check.name}
        | {"condition": check.condition, "severity": check.severity}
        for check in stream.checks
    )


def _checked_at(row: Row) -> datetime:
    return row["checked_at"]  # type: ignore[no-any-return]


def _runs(recorded: Recorded, stream: Stream) -> tuple[RunPoint, ...]:
    where = {"subject": stream.name}
    since = ("started_at", recorded.since)
    rows = read_ops(recorded.lake, "runs", where, RUN_SERIES, since).to_pylist()
    batches = _batches(recorded, stream)
    drains = [row for row in rows if row["job"] in ("run_stream", "compact_state")]
    drains.sort(key=lambda row: row["ended_at"])
    return tuple(_run(row, batches[row["run_id"]]) for row in drains)


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
    """A run's seconds: Spark tells what its batches took, and the rest is the session, the ledger
    and a savepoint."""

    def sum_of(*names: str) -> float:
        return sum(batch.get(name, 0) for batch in batches for name in names) / 1_000

    whole = sum_of("triggerExecution")
    planning, work, position = sum_of(*PLANNING), sum_of("addBatch"), sum_of(*POSITION)
    other = max(whole - planning - work - position, 0.0)
    around = max(seconds - whole, 0.0)
    return dict(zip(PARTS, (around, planning, work, position, other), strict=True))


def _batches(recorded: Recorded, stream: Stream) -> Mapping[str, list[Row]]:
    """What is shown of each batch in the window, by its run: Spark's durations, in milliseconds, and
    the rows of its buckets."""
    columns = ("run_id", "durations_ms", "rows_in", "rows_in_most", "buckets_touched")
    since = ("committed_at", recorded.since)
    rows = read_ops(recorded.lake, "batches", {"stream": stream.name}, columns, since)
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows.to_pylist():
        found[row["run_id"]].append(row)
    return found


def _measured(recorded: Recorded, stream: Stream) -> dict[str, Any]:
    """The checkpoint through time, and its partitions by now."""
    since = ("measured_at", recorded.since)
    where = {"stream": stream.name}
    rows = read_ops(recorded.lake, "checkpoint_sizes", where, SIZE_SERIES, since)
    found: dict[datetime, list[Row]] = defaultdict(list)
    for row in rows.to_pylist():
        found[row["measured_at"]].append(row)
    sizes = tuple(_size(at, found[at]) for at in sorted(found))
    return {"sizes": sizes, "partitions": _partitions(found)}


def _size(at: datetime, rows: Sequence[Row]) -> SizePoint:
    by_part: dict[str, int] = defaultdict(int)
    for row in rows:
        by_part[row["part"]] += row["bytes"]
    return SizePoint(
        measured_at=at,
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


def _partitions(measured: Mapping[datetime, Sequence[Row]]) -> tuple[Row, ...]:
    newest = measured[max(measured)] if measured else []
    stores = [row for row in newest if row["partition"] is not None]
    return tuple(sorted(stores, key=lambda row: (row["operator"], row["partition"])))


def _coverage(
    recorded: Recorded, stream: Stream, now: datetime, window: timedelta
) -> dict[str, Any]:
    """Where the table is right: also compared with its own log, as a check does."""
    row = recorded.generations.get(stream.name)
    if row is None or row.current is None:
        return {}
    judged = table_coverage(recorded.lake, stream)
    return {
        "days": days_of(judged.coverage, now, max(window // timedelta(days=1), 1)),
        "wrong": judged.coverage.wrong,
        "advice": tuple(findings_on(recorded.lake, stream, judged, row.current)),
    }
