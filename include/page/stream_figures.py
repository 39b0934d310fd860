"""A stream through time: its runs, checkpoint, settings, savepoints, coverage and biggest keys.

As the overview's lines, read from the lake without a JVM, and for a page: what cannot be read is
said in `troubles`, and the rest is there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from include.coverage.judge import Coverage, Span
from include.coverage.table_coverage import findings_on, table_coverage
from include.lake.delta_log import first_line
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
from include.page.run_points import RunPoint, read_runs
from include.page.shown_time import ShownTime
from include.page.size_points import SizePoint, read_sizes
from include.settings import Stream
from include.stream_definition import load_definition

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
    savepoints: tuple[Row, ...] = ()  # the newest first
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
    recorded = Recorded(lake, time.begin(now), stream, until)
    parts: dict[str, Callable[[], Any]] = {
        "runs": lambda: read_runs(recorded, stream),
        "measured": lambda: read_sizes(recorded, stream)._asdict(),
        "savepoints": lambda: _rows(lake, "savepoints", stream, "until"),
        "profiles": lambda: _rows(lake, "rocksdb_profiles", stream, "profile"),
        "recomputes": lambda: _rows(lake, "intervals", stream, "recomputed_at"),
        "checks": lambda: _checks(recorded, stream),
        "findings": lambda: tuple(open_findings(recorded, stream)),
        "keys": lambda: biggest_keys(lake, stream.name),
        "coverage": lambda: _coverage(recorded, stream, now, time),
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
    row = recorded.generations.get(stream.name)
    if row is None or row.current is None:
        return {}
    judged = table_coverage(recorded.lake, stream)
    return {
        "days": _days(judged.coverage, now, time),
        "is_complete": judged.coverage.until_us is not None,
        "wrong": judged.coverage.wrong,
        "advice": tuple(findings_on(recorded.lake, stream, judged, row.current)),
    }


def _days(coverage: Coverage, now: datetime, time: ShownTime) -> tuple[Day, ...]:
    end = (
        time.until - timedelta(microseconds=1) if time.until else now
    )  # that midnight is of the next day
    return days_of(coverage, end, max(time.length // timedelta(days=1), 1))
