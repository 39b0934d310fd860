"""The figures of a stream's page: runs, checkpoint, savepoints, status, biggest keys, refused rows.

Read from the lake without a JVM; `problems` says which parts cannot be read.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from heapq import nlargest
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from include.ingest.bronze_tables import read_quarantine
from include.lake.delta_log import first_line
from include.lake.generations import StreamResult, read_result
from include.lake.ops import Measured, read_measured, read_ops, replaced_by, runs_of
from include.lake.paths import Lake
from include.observe.explain import text_of_key
from include.observe.state_report import BIGGEST_KEYS, biggest_keys, value_bytes
from include.observe.stream_line import (
    READ_ERRORS,
    RUN,
    WINDOW_DAYS,
    Recorded,
    Row,
    StreamLine,
    bare_line,
    line_of,
)
from include.settings import Check, Stream
from include.stream.manifest import Savepoint, newest_savepoint, savepoints_of, states_in
from include.stream.open_stream import DRAINING_JOBS
from include.stream_definition import load_definition


class BigKeys(NamedTuple):
    """The biggest keys of a savepoint, the biggest first."""

    until: datetime
    keys: tuple[Row, ...]  # key, as text; bytes, changed_at, timeout_at, state


COLUMNS = ["key", "state", "changed_at_us", "timeout_at_us"]


def newest_keys(lake: Lake, stream: str) -> BigKeys | None:
    """The biggest keys of the newest savepoint of `stream`; None before there is one."""
    newest = newest_savepoint(lake, stream)
    return None if newest is None else BigKeys(newest.until, _biggest(lake, newest))


# A savepoint never changes, and may have many millions of keys.
@lru_cache(maxsize=100)
def _biggest(lake: Lake, savepoint: Savepoint) -> tuple[Row, ...]:
    biggest: list[Row] = []
    for batch in states_in(lake, savepoint).to_batches(columns=COLUMNS):
        sizes = value_bytes(batch.select(["key", "state"]).to_struct_array())
        shown = biggest_keys(pa.Table.from_batches([batch]), sizes)
        biggest += [row | {"key": text_of_key(row["key"])} for row in shown]
        biggest = sorted(biggest, key=lambda key: (-key["bytes"], key["key"]))[:BIGGEST_KEYS]
    return tuple(biggest)


RUN_SERIES = (
    *("run_id", "job", "started_at", "ended_at", "outcome", "error", "until"),
    *("rows_in", "rows_folded", "rows_late", "rows_pending", "rows_out"),
    *("jvm_rss_bytes", "python_rss_bytes", "jvm_start_seconds"),
)
BATCH_SERIES = ("run_id", "durations_ms", "rows_in", "rows_in_most", "buckets_touched")
PARTS = ("around batches", "Spark's batches")


def read_runs(recorded: Recorded, stream: Stream) -> tuple[Row, ...]:
    """The runs and compactions that ended in the window, in order: rows of `ops/runs`, with
    `seconds` in all and by `parts`, `lag_seconds` of the table at its end, `rss_bytes`, and
    `bucket_skew`: rows of a batch's fullest bucket, in times of the mean of those touched.
    """
    drains = runs_of(recorded.lake, stream.name, DRAINING_JOBS, RUN_SERIES)
    drains = drains.filter(pc.field("ended_at") >= pa.scalar(recorded.since))
    # The first run may have begun before the window.
    began = pc.min(drains["started_at"]).as_py() or recorded.since
    committed = pc.field("committed_at") >= pa.scalar(began)
    where, batches = {"stream": stream.name}, defaultdict[str, list[Row]](list)
    for row in read_ops(recorded.lake, "batches", where, BATCH_SERIES, committed).to_pylist():
        batches[row["run_id"]].append(row)
    return tuple(_run(row, batches[row["run_id"]]) for row in drains.to_pylist())


def _run(row: Row, batches: Sequence[Row]) -> Row:
    seconds = (row["ended_at"] - row["started_at"]).total_seconds()
    until = row["until"]
    # A killed run has no durations.
    durations = (json.loads(batch["durations_ms"] or "{}") for batch in batches)
    of_spark = sum(each.get("triggerExecution", 0) for each in durations) / 1_000
    return {
        **row,
        "seconds": seconds,
        "parts": dict(zip(PARTS, (max(seconds - of_spark, 0.0), of_spark), strict=True)),
        "lag_seconds": None if until is None else (row["ended_at"] - until).total_seconds(),
        "rss_bytes": (row["jvm_rss_bytes"] or 0) + (row["python_rss_bytes"] or 0),
        "bucket_skew": max(map(_bucket_skew, batches), default=None),
    }


def _bucket_skew(batch: Row) -> float:
    if not batch["rows_in"] or not batch["rows_in_most"]:
        return 1.0
    return float(batch["rows_in_most"] * batch["buckets_touched"] / batch["rows_in"])


MOST_DAYS = 3_650
DAY = timedelta(days=1)
LEAST_TIME = timedelta(hours=1)


def time_of_runs(recorded: Recorded, stream: Stream, now: datetime) -> timedelta:
    """The time since the first run of the window, at least an hour."""
    began = recorded.counted.get((RUN, stream.name), {}).get("started_at_min")
    length = WINDOW_DAYS * DAY if began is None else now - began
    return min(max(length, LEAST_TIME), WINDOW_DAYS * DAY)


REFUSED = ("ingested_at", "source_file", "row_number", "reason_code", "reason", "raw")
SHOWN_REFUSED = 10


@dataclass(frozen=True, kw_only=True)
class StreamFigures:
    """The figures of a stream's page."""

    line: StreamLine
    title: str
    now: datetime
    time: timedelta  # before `now`: for counts, charts and lists; all else is as of `now`
    limits: Mapping[str, float | None]
    key_names: str  # of the fields of its key
    runs: tuple[Row, ...] = ()
    measured: Sequence[Measured] = ()  # of its checkpoint, in order
    savepoints: tuple[Savepoint, ...] = ()  # the newest first
    restates: Sequence[Row] = ()  # the newest first
    checks: Sequence[Check] = ()
    keys: BigKeys | None = None
    result: StreamResult | None = None  # the first rows of its table
    refused: Sequence[Row] = ()  # open rows of its source's quarantine, the newest first
    problems: Mapping[str, str] = field(default_factory=dict)  # part -> why it is missing

    @property
    def findings(self) -> Sequence[Row]:
        """The open findings, the worst first."""
        return self.line.found

    def not_met(self, check: Check) -> str:
        """The detail of the open finding on one of `checks=`; "" where it is met."""
        details = (r["detail"] for r in self.findings if r["finding"].startswith("data_check_"))
        return next((detail for detail in details if f"check {check.name}: " in detail), "")

    @property
    def unread(self) -> list[str]:
        """A line for each part that could not be read."""
        return [*([self.line.problem] if self.line.problem else []), *self.problems.values()]

    @property
    def begin(self) -> datetime:
        return self.now - self.time


def read_stream(
    lake: Lake, stream: Stream, now: datetime, time: timedelta | None = None
) -> StreamFigures:
    """The figures of `stream` for `time` before `now`; None: since its first run."""
    recorded = Recorded(lake, now - (time or WINDOW_DAYS * DAY), stream)
    count = None if time is None else -(-time // DAY)
    read: dict[str, Any] = {"time": time or WINDOW_DAYS * DAY}
    parts: dict[str, Callable[[], Any]] = {
        "line": lambda: line_of(recorded, stream, now, days=count),
        "time": lambda: time or time_of_runs(recorded, stream, now),
        "runs": lambda: read_runs(recorded, stream),
        "measured": lambda: read_measured(lake, stream.name, recorded.since).get(stream.name, ()),
        "savepoints": lambda: savepoints_of(lake, stream.name)[::-1],
        "restates": lambda: replaced_by(lake, stream.name)[::-1],
        "keys": lambda: newest_keys(lake, stream.name),
        "result": lambda: read_result(lake, stream.name),
        "refused": lambda: _refused(lake, stream.source),
    }
    problems = {}
    for name, part in parts.items():
        try:
            read[name] = part()
        except READ_ERRORS as error:
            problems[name] = f"{name} cannot be read: {first_line(error)}"
    if "line" in problems:
        read["line"] = bare_line(stream, now, problems.pop("line"))
    return StreamFigures(
        title=stream.title or stream.name,
        now=now,
        limits=vars(stream.limits),
        checks=stream.checks,
        key_names=load_definition(stream).fold.keys.text(),
        problems=problems,
        **read,
    )


def _refused(lake: Lake, source: str) -> Sequence[Row]:
    rows = list[Row]()
    for batch in read_quarantine(lake, source, pc.field("resolved_at").is_null(), columns=REFUSED):
        newest = pc.select_k_unstable(batch, SHOWN_REFUSED, [("ingested_at", "descending")])
        rows += batch.take(newest).to_pylist()
    return nlargest(SHOWN_REFUSED, rows, key=itemgetter("ingested_at"))
