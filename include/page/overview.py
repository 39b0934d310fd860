"""All streams, a line each: how complete, how right, how big, and what people should look at.

Read from `ops` and bronze, without a JVM. Nothing is raised for a lake that cannot be read: what
is wrong with it is what a page has to show.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal

import pyarrow as pa
from croniter import croniter
from deltalake.exceptions import DeltaError

from include.coverage.findings import OF_COVERAGE, WHY
from include.coverage.judge import Coverage, Reason, Span
from include.fold.admission import instant_of, micros_of
from include.lake.delta_log import first_line
from include.lake.findings import Finding
from include.lake.paths import Lake, LakeError
from include.page.recorded import INGEST, RUN, Recorded, Row, RunsOf
from include.savepoints.manifest import newest_savepoint
from include.settings import Stream
from include.text_table import counted

Status = Literal["right", "late", "code", "unproved", "unsettled", "none"]
STATUS_OF: dict[Reason | None, Status] = {
    None: "right",
    "late rows": "late",
    "other code": "code",
    "other bronze": "unproved",
    "not recorded": "unproved",
    "cut off": "unproved",
}
# The worst first: a day is what the worst of its spans is.
WORST: tuple[Status, ...] = ("unproved", "code", "late", "unsettled", "right", "none")
NOT_RIGHT: tuple[Status, ...] = ("unproved", "code", "late")
WORDS: dict[Status, str] = {
    "right": "right",
    "late": "late rows missing",
    "code": "other code",
    "unproved": "not proved",
    "unsettled": "not yet settled",
    "none": "nothing yet",
}
DAY_US = 86_400 * 10**6
EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Day:
    """A day (UTC) of a table, and why it is not right."""

    date: date
    status: Status
    why: str


def days_of(coverage: Coverage, now: datetime, count: int) -> tuple[Day, ...]:
    """The newest `count` days up to that of `now`, in order."""
    newest = micros_of(now) // DAY_US
    return tuple(_day(coverage, number) for number in range(newest - count + 1, newest + 1))


def days_text(days: Sequence[Day]) -> str:
    """The bar in words: "27 days right, 3 days late rows missing"."""
    counts = Counter(day.status for day in days)
    return ", ".join(
        f"{counted(counts[s], 'day')} {WORDS[s]}" for s in reversed(WORST) if counts[s]
    )


def _day(coverage: Coverage, number: int) -> Day:
    """Of the day of that number since 1970."""
    from_us, until_us = number * DAY_US, (number + 1) * DAY_US
    spans = [s for s in coverage.spans if s.from_us < until_us and from_us < s.until_us]
    statuses = {STATUS_OF[span.reason] for span in spans}
    if coverage.until_us is None:
        statuses.add("none")
    elif coverage.until_us < until_us:
        statuses.add("unsettled")
    status = next(status for status in WORST if status in statuses)
    return Day(EPOCH + timedelta(days=number), status, _why(status, spans))


def _why(status: Status, spans: Sequence[Span]) -> str:
    span = next((s for s in spans if s.reason and STATUS_OF[s.reason] == status), None)
    if span is None or span.reason is None:
        return WORDS[status]
    missing = sum(group.rows for group in span.missing)
    rows = f" ({missing:,} rows)" if missing else ""
    return f"{WORDS[status]}: {WHY[span.reason]}{rows}"


WINDOW_DAYS = 30
SEVERITIES = ("error", "warning", "info")
# Of what was recorded or lies there: a page says so, and shows the rest. Instants that Arrow has
# and Python has not, beyond the year 9999, overflow.
READ_ERRORS = (LakeError, OSError, OverflowError, ValueError, pa.ArrowException, DeltaError)
# Said by each batch, or each command, of what it did itself. All else is said anew as a whole.
EACH_ITS_OWN = {
    "rows_rejected",
    "rows_quarantined",
    "versions_ignored",
    "rows_skipped",
}
State = Literal["filled", "empty", "unreadable"]


@dataclass(frozen=True, kw_only=True)
class StreamLine:
    """A stream in brief. Rows are of the window; a figure of None was never recorded."""

    stream: str
    source: str
    schedule: str
    until: datetime | None = None
    lag: timedelta | None = None  # from `until` to now
    promised: timedelta  # `fresh_within`, or what one run a tick comes to: two ticks and the delay
    next_run: datetime  # by its schedule
    last_run: datetime | None = None
    last_outcome: str | None = None
    last_error: str | None = None
    last_seconds: float | None = None
    runs: int = 0
    rows_per_run: tuple[int, ...] = ()  # the newest SPARK_RUNS, the newest last
    rows_in: int = 0
    rows_late: int = 0
    rows_quarantined: int = 0  # of its source
    rows_pending: int | None = None
    keys: int | None = None  # of the newest savepoint
    keys_at: datetime | None = None  # the instant of that
    state_bytes: int | None = None
    checkpoint_bytes: int | None = None
    findings: Mapping[str, int]  # open ones, by severity
    days: tuple[Day, ...] = ()
    trouble: str | None = None  # why the rest of the line is not there

    @property
    def is_behind(self) -> bool:
        """Whether its table is further behind than its schedule explains."""
        return self.lag is not None and self.lag > self.promised


@dataclass(frozen=True, kw_only=True)
class Overview:
    """All streams of a lake at an instant."""

    lake: str
    now: datetime
    state: State
    reason: str | None = None  # unreadable: why
    lines: tuple[StreamLine, ...] = ()
    wrong: tuple[str, ...] = ()  # what is wrong with files of include/streams


def unreadable(
    lake: Lake, reason: str, now: datetime | None = None, wrong: Sequence[str] = ()
) -> Overview:
    """The overview of a lake that cannot be read."""
    at = now or datetime.now(UTC)
    return Overview(lake=lake.root, now=at, state="unreadable", reason=reason, wrong=tuple(wrong))


def read_overview(
    lake: Lake, streams: Sequence[Stream], now: datetime | None = None, wrong: Sequence[str] = ()
) -> Overview:
    """The overview of `streams`."""
    at = now or datetime.now(UTC)
    recorded = Recorded(lake, at - timedelta(days=WINDOW_DAYS))
    try:
        is_filled = lake.is_delta_table(lake.ops("runs"))
        lines = tuple(line_of(recorded, stream, at) for stream in streams)
    except READ_ERRORS as error:
        return unreadable(lake, first_line(error), at, wrong=wrong)
    state: State = "filled" if is_filled else "empty"
    return Overview(lake=lake.root, now=at, state=state, lines=lines, wrong=tuple(wrong))


def line_of(recorded: Recorded, stream: Stream, now: datetime) -> StreamLine:
    """The line of one stream. What `ops` has is read as a whole; of bronze, each says its own."""
    known: dict[str, Any] = _by_schedule(stream, now) | _runs(recorded, stream)
    known |= _state(recorded, stream)
    found = open_findings(recorded, stream)
    try:
        coverage, wrong = recorded.coverage(stream)
    except READ_ERRORS as error:
        known["trouble"] = f"whether its table is right cannot be told: {first_line(error)}"
    else:
        if coverage.until_us is not None:  # a rewind has taken back what runs had come to
            known["until"] = instant_of(coverage.until_us)
        known["days"] = days_of(coverage, now, WINDOW_DAYS)
        found = still_open(found, wrong)
    lag = None if known["until"] is None else now - known["until"]
    return StreamLine(**known, lag=lag, findings=_counted(found))


def bare_line(stream: Stream, now: datetime, trouble: str) -> StreamLine:
    """The line of a stream of which nothing can be read."""
    return StreamLine(**_by_schedule(stream, now), findings=_counted([]), trouble=trouble)


def _by_schedule(stream: Stream, now: datetime) -> dict[str, Any]:
    before, following = _ticks(stream.schedule, now)
    return {
        "stream": stream.name,
        "source": stream.source,
        "schedule": stream.schedule,
        "promised": stream.fresh_within or following - before + stream.watermark_delay,
        "next_run": following,
    }


@lru_cache(maxsize=1_000)
def _ticks(schedule: str, now: datetime) -> tuple[datetime, datetime]:
    """The tick before the newest one, and the next: on a Monday there is a weekend between."""
    ticks = croniter(schedule, now)
    following = ticks.get_next(datetime)
    ticks.get_prev(datetime)
    return ticks.get_prev(datetime), following


def _runs(recorded: Recorded, stream: Stream) -> dict[str, Any]:
    taken_in = recorded.runs.get((INGEST, stream.source))
    quarantined = 0 if taken_in is None else taken_in.sums["rows_quarantined"]
    runs = recorded.runs.get((RUN, stream.name))
    known = {"until": None} if runs is None else _own_runs(runs)
    if taken_in is not None and _is_in_the_way(taken_in.newest, runs):
        known |= _failed_with(stream.source, taken_in.newest)
    return known | {"rows_quarantined": quarantined}


def _is_in_the_way(taken_in: Row, runs: RunsOf | None) -> bool:
    """Of an ingestion that failed: no run is begun after it, so that none says that it failed."""
    if taken_in["outcome"] != "failed":
        return False
    return runs is None or bool(runs.newest["ended_at"] < taken_in["ended_at"])


def _failed_with(source: str, taken_in: Row) -> dict[str, Any]:
    error = f"ingestion of {source}: {taken_in['error']}"
    return {"last_run": taken_in["ended_at"], "last_outcome": "failed", "last_error": error}


def _own_runs(runs: RunsOf) -> dict[str, Any]:
    last = runs.newest
    return {
        "until": runs.succeeded.get("until"),
        "last_run": last["ended_at"],
        "last_outcome": last["outcome"],
        "last_error": last["error"],
        "last_seconds": (last["ended_at"] - last["started_at"]).total_seconds(),
        "runs": runs.count,
        "rows_per_run": runs.rows_in,
        "rows_in": runs.sums["rows_in"],
        "rows_late": runs.sums["rows_late"],
        "rows_pending": runs.succeeded.get("rows_pending"),
    }


def _state(recorded: Recorded, stream: Stream) -> dict[str, Any]:
    newest = newest_savepoint(recorded.lake, stream.name)
    return {
        "keys": newest and newest.keys,
        "keys_at": newest and newest.until,
        "state_bytes": recorded.sizes.get((stream.name, "state")),
        "checkpoint_bytes": recorded.sizes.get((stream.name, "all")),
    }


def open_findings(recorded: Recorded, stream: Stream) -> list[Row]:
    """What was found of a stream and of its source since their newest run began, the worst first.

    Each run is followed by a check, so what an earlier one found, and this one did not, is over.
    """
    of_stream = _found_since(recorded, RUN, stream.name)
    of_source = _found_since(recorded, INGEST, stream.source)
    # A stream may be called as its source is.
    found = {id(row): row for row in [*of_source, *of_stream]}.values()
    return sorted(found, key=lambda row: (SEVERITIES.index(row["severity"]), row["finding"]))


def _found_since(recorded: Recorded, job: str, subject: str) -> list[Row]:
    runs = recorded.runs.get((job, subject))
    began = recorded.since if runs is None else runs.newest["started_at"]
    found = [row for row in recorded.findings.get(subject, ()) if row["found_at"] >= began]
    return newest_of_each(found, ("finding",))


def newest_of_each(rows: Sequence[Row], columns: Sequence[str]) -> list[Row]:
    """Without what was said anew later, of the same `columns`."""
    newest: dict[tuple[Any, ...], datetime] = {}
    for row in sorted(rows, key=itemgetter("found_at")):
        newest[tuple(row[column] for column in columns)] = row["found_at"]
    return [
        row
        for row in rows
        if row["finding"] in EACH_ITS_OWN
        or row["found_at"] == newest[tuple(row[column] for column in columns)]
    ]


def still_open(found: Sequence[Row], wrong: Sequence[Finding]) -> list[Row]:
    """Without what a recompute or a reseed has mended since: nothing `wrong` has it any more."""
    over = OF_COVERAGE - {finding.finding for finding in wrong}
    return [row for row in found if row["finding"] not in over]


def _counted(findings: Sequence[Row]) -> dict[str, int]:
    return {s: sum(row["severity"] == s for row in findings) for s in SEVERITIES}
