"""The figures of each stream in one line, for the overview, metrics, alerts and reports.

Read without a JVM from `ops`, bronze and the records of tables and savepoints. A lake that cannot be
read raises nothing here: the page shows why.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, lru_cache, partial
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from croniter import croniter
from deltalake.exceptions import DeltaError

from include.catalogue import FINDINGS, METRICS
from include.fold.admission import instant_of, micros_of
from include.lake.delta_log import first_line, open_table
from include.lake.errors import LakeError
from include.lake.ops import (
    SEVERITIES,
    Measured,
    finding_lines,
    not_ahead,
    read_measured,
    read_ops,
    record_findings,
)
from include.lake.paths import Lake
from include.registry import ancestors_of, parents_of
from include.settings import Stream
from include.stream.bronze import BronzeFiles
from include.stream.manifest import newest_savepoint
from include.stream.stream_status import (
    OF_STATUS,
    Reason,
    Statuses,
    StreamStatus,
    TableStatus,
    instant_text,
)
from include.text_table import counted

Row = Mapping[str, Any]
RUN, INGEST, REBUILD = "run_stream", "ingest_source", "rebuild_stream"
# Columns of ops/runs in words: of a source's run, and of a stream's.
INGESTED = {"rows_landed": "landed", "rows_quarantined": "quarantined", "rows_rescued": "rescued"}
FOLDED = {"rows_in": "read", "rows_late": "late", "rows_pending": "pending", "rows_out": "written"}
SUMMED = ("rows_in", "rows_late", "rows_quarantined")
OF_RUN = ("run_id", "job", "subject", "started_at", "ended_at", "outcome", "error", "until")
FINDING_COLUMNS = ("found_at", "subject", "finding", "severity", "count", "detail", "action")
# Lost for good: open until `./stateful ingest SOURCE --accept-loss`.
LOST, ACCEPTED = ("rows_skipped", "versions_ignored"), "loss_accepted"
# A check comes after each run. Some of these may have failed.
UNCHECKED = timedelta(days=2)


@dataclass(frozen=True)
class Recorded:
    """The rows of `ops` on streams and sources; each table is read once, on demand."""

    lake: Lake
    since: datetime  # the beginning of the window that is counted
    only: Stream | None = None  # it and its source alone; None: all

    @cached_property
    def _runs(self) -> pa.Table:
        columns = (*OF_RUN, *INGESTED, *FOLDED)
        rows = read_ops(self.lake, "runs", None, columns, not_ahead("ended_at"))
        rows = rows.filter(pc.is_in(rows["job"], pa.array([RUN, INGEST, REBUILD])))
        if self.only is not None:
            names = pa.array([self.only.name, self.only.source])
            rows = rows.filter(pc.is_in(rows["subject"], names))
        return rows.sort_by("ended_at")

    @cached_property
    def newest(self) -> Mapping[tuple[str, str], Row]:
        """The newest run of each job and subject."""
        return _newest(self._runs)

    @cached_property
    def succeeded(self) -> Mapping[tuple[str, str], Row]:
        """The newest run that succeeded, of each job and subject."""
        return _newest(self._runs.filter(pc.equal(self._runs["outcome"], "succeeded")))

    @cached_property
    def counted(self) -> Mapping[tuple[str, str], Row]:
        """`count_all`, `started_at_min` and sums (`rows_in_sum`) of the window's runs."""
        rows = self._runs.filter(pc.greater_equal(self._runs["ended_at"], pa.scalar(self.since)))
        sums = ((name, "sum") for name in SUMMED)
        groups = rows.group_by(["job", "subject"])
        counts = groups.aggregate([([], "count_all"), ("started_at", "min"), *sums])
        return {(row["job"], row["subject"]): row for row in counts.to_pylist()}

    @cached_property
    def findings(self) -> Mapping[str, Sequence[Row]]:
        """The findings of each subject that may be open or are of the window, in order of time."""
        wanted = pc.field("found_at") >= pa.scalar(self._begun)
        wanted |= pc.field("finding").isin([*LOST, ACCEPTED])
        rows = read_ops(self.lake, "findings", columns=FINDING_COLUMNS, wanted=wanted)
        found: dict[str, list[Row]] = defaultdict(list)
        for row in rows.sort_by("found_at").to_pylist():
            found[row["subject"]].append(row)
        return found

    @property
    def _begun(self) -> datetime:
        """An instant before which no finding of a run can be open."""
        runs = (r["started_at"] for (job, _), r in self.succeeded.items() if job != REBUILD)
        oldest: datetime = min(runs, default=self.since)
        return min(self.since, oldest)

    def open_findings(self, stream: Stream) -> list[Row]:
        """The open findings of a stream and of its source, the worst first.

        A finding of a run is closed by the next run that succeeds, one of a check by the next check
        after such a run, both by a rebuild, and a loss by `ingest --accept-loss`.
        """
        ingested = self.succeeded.get((INGEST, stream.source), {}).get("started_at", self.since)
        # A stream may have its source's name.
        begun = {stream.source: ingested, stream.name: self._looked_since(stream)}
        found = [row for subject, since in begun.items() for row in self._found(subject, since)]
        return sorted(found, key=lambda row: (SEVERITIES.index(row["severity"]), row["finding"]))

    def _looked_since(self, stream: Stream) -> datetime:
        """The start of the newest run that succeeded; until it is checked, the check before it."""
        run, rebuild = (self.succeeded.get((job, stream.name), {}) for job in (RUN, REBUILD))
        began: datetime = run.get("started_at", self.since)
        measured = self.measured.get(stream.name)
        since = began if measured is None else min(began, measured.at)
        rebuilt_at: datetime = rebuild.get("started_at", since)
        return max(since, rebuilt_at)

    def _found(self, subject: str, since: datetime) -> list[Row]:
        """The findings of a subject since then, each detail once."""
        found = self.findings.get(subject, ())
        lost = accepted_at(found)
        rows = [r for r in found if r["found_at"] >= (lost if r["finding"] in LOST else since)]
        return list({(row["finding"], row["detail"]): row for row in rows}.values())

    @cached_property
    def measured(self) -> Mapping[str, Measured]:
        """The last measurement of each stream's checkpoint."""
        of = None if self.only is None else self.only.name
        known = read_measured(self.lake, of, self._begun - UNCHECKED)
        return {stream: measured[-1] for stream, measured in known.items()}

    @cached_property
    def data_us(self) -> Callable[[str], tuple[int, int] | None]:
        """The first and last event time of a source's bronze, in microseconds; None without rows."""
        return lru_cache(None)(partial(_data_us, self.lake))

    @cached_property
    def statuses(self) -> Statuses:
        return Statuses(self.lake)


def _data_us(lake: Lake, source: str) -> tuple[int, int] | None:
    path = lake.bronze(source)
    if not lake.is_delta_table(path):
        return None
    first, last = BronzeFiles(open_table(path)).span("event_time")
    ends = (pc.min(first).as_py(), pc.max(last).as_py())
    return None if None in ends else ends


def _newest(rows: pa.Table) -> dict[tuple[str, str], Row]:
    """The last row of each job and subject; the others, which are many, become no Python objects."""
    numbered = rows.append_column("at", pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(["job", "subject"]).aggregate([("at", "max")])["at_max"]
    return {(row["job"], row["subject"]): row for row in rows.take(last).to_pylist()}


def accepted_at(found: Sequence[Row]) -> datetime:
    """The instant of the newest accepted loss among the findings of a source."""
    accepted = [row["found_at"] for row in found if row["finding"] == ACCEPTED]
    return max(accepted, default=datetime.min.replace(tzinfo=UTC))


def open_losses(lake: Lake, source: str) -> list[Row]:
    """The findings on lost rows that nobody has accepted yet."""
    found = Recorded(lake, datetime.now(UTC)).findings.get(source, ())
    return [r for r in found if r["finding"] in LOST and r["found_at"] >= accepted_at(found)]


def record_accepted(lake: Lake, source: str) -> None:
    """Record that losses until now are accepted, which closes the findings on them."""
    found = FINDINGS[ACCEPTED].found(source, "what was lost is accepted")
    record_findings(lake, None, source, [found])


Status = Literal["right", "late", "code", "waits", "unknown", "incomplete", "none"]
STATUS_OF: dict[Reason | None, Status] = {
    None: "right",
    "late rows": "late",
    "other code": "code",
    "not recorded": "unknown",
    "cut off": "unknown",
    "upstream": "waits",
}
# The worst first: a day has the status of its worst span.
WORDS: dict[Status, str] = {
    "unknown": "unknown",
    "code": "other code",
    "late": "late rows missing",
    "waits": "waits for a table that it reads",
    "incomplete": "not yet complete",
    "right": "right",
    "none": "no data",
}
WORST = tuple(WORDS)
NOT_RIGHT = WORST[:4]
DAY_US = 86_400 * 10**6
EPOCH = date(1970, 1, 1)


class Day(NamedTuple):
    """A day (UTC) of a table, and its status."""

    date: date
    status: Status


def days_of(
    table_status: TableStatus, now: datetime, count: int | None, data: tuple[int, int] | None = None
) -> tuple[Day, ...]:
    """The last `count` days up to `now`, in order; None: up to 30 days that have data.

    `data` is the first and last event time of the source, in microseconds.
    """
    first_us, newest = None if data is None else data[0], micros_of(now) // DAY_US
    if count is None and data is not None:
        newest = min(newest, data[1] // DAY_US)
        count = min(max(newest - data[0] // DAY_US + 1, 1), WINDOW_DAYS)
    days = range(newest - (count or WINDOW_DAYS) + 1, newest + 1)
    return tuple(Day(EPOCH + timedelta(days=n), _status(table_status, n, first_us)) for n in days)


def days_text(days: Sequence[Day]) -> str:
    """The days in words: `27 days right, 3 days late rows missing`."""
    counts = Counter(day.status for day in days)
    known = (status for status in reversed(WORST) if counts[status])
    return ", ".join(f"{counted(counts[status], 'day')} {WORDS[status]}" for status in known)


def _status(table_status: TableStatus, number: int, first_us: int | None) -> Status:
    """The status of the day of that number since 1970."""
    from_us, until_us = number * DAY_US, (number + 1) * DAY_US
    if first_us is not None and until_us <= first_us:
        return "none"
    spans = (s for s in table_status.spans if s.from_us < until_us and from_us < s.until_us)
    statuses = {STATUS_OF[span.reason] for span in spans}
    if table_status.until_us is None:
        statuses.add("none")
    elif table_status.until_us < until_us:
        statuses.add("incomplete")
    return min(statuses, key=WORST.index)


WINDOW_DAYS = 30
# Of one part of a page: the others are shown all the same. Instants beyond the year 9999, which
# Arrow has and Python has not, overflow.
READ_ERRORS = (LakeError, OSError, OverflowError, ValueError, pa.ArrowException, DeltaError)


@dataclass(frozen=True, kw_only=True)
class StreamLine:
    """A stream in brief, by the names that METRICS of the catalogue has.

    Rows are of the window; None stands for a figure that was never recorded.
    """

    stream: str
    source: str
    reads: tuple[str, ...] = ()  # the streams whose tables it reads
    depth: int = 0  # the number of streams before it
    schedule: str
    until: datetime | None = None
    until_lag_promised: timedelta  # `fresh_within`, or two ticks of the schedule and the delay
    next_run: datetime  # by its schedule
    now: datetime
    run_end: datetime | None = None
    last_outcome: str | None = None
    last_error: str | None = None
    run_seconds: float | None = None
    runs: int = 0
    rows: Mapping[str, int] = field(default_factory=lambda: {"in": 0, "late": 0, "quarantined": 0})
    rows_pending: int | None = None
    state_keys: int | None = None  # of the newest savepoint
    keys_at: datetime | None = None  # `until` of that savepoint
    state_bytes: int | None = None
    checkpoint_bytes: int | None = None
    found: Sequence[Row] = ()  # open findings, the worst first
    status: StreamStatus | None = None
    days: tuple[Day, ...] = ()
    problem: str | None = None  # why the rest of the line is missing

    @property
    def until_lag(self) -> timedelta | None:
        return None if self.until is None else self.now - self.until

    @property
    def is_behind(self) -> bool:
        """True if the table is further behind than promised."""
        return self.until_lag is not None and self.until_lag > self.until_lag_promised

    @property
    def verdict(self) -> str:
        """The verdict on the table in a few words."""
        if self.status is None or self.status.table_status.until_us is None:
            return ""
        if self.status.doubt is not None:
            return "not proved"
        wrong = self.status.table_status.wrong
        word = "waits" if wrong and wrong[0].reason == "upstream" else "wrong"
        return f"{word} from {instant_text(wrong[0].from_us)[:16]}" if wrong else "right"

    @property
    def run_failed(self) -> bool | None:
        return None if self.run_end is None else self.last_outcome == "failed"

    @property
    def findings(self) -> Mapping[str, int]:
        """The number of open findings, by severity."""
        return {s: sum(row["severity"] == s for row in self.found) for s in SEVERITIES}

    @property
    def dates_not_right(self) -> Mapping[str, int] | None:
        """The number of days that are not right, by status; None if unknown."""
        counts = Counter(day.status for day in self.days)
        return {why: counts[why] for why in reversed(NOT_RIGHT)} if self.days else None


@dataclass(frozen=True, kw_only=True)
class Overview:
    """All streams of a lake at an instant."""

    lake: str
    now: datetime
    reason: str | None = None  # why the lake cannot be read
    is_empty: bool = False  # no job has run in it
    lines: tuple[StreamLine, ...] = ()
    wrong: Sequence[str] = ()  # errors of files of include/streams
    unhealthy: str | None = None  # of Airflow, for its page alone

    @property
    def unread(self) -> list[str]:
        """A line for each part that could not be read."""
        lines = [f"{line.stream}: {line.problem}" for line in self.lines if line.problem]
        lake = [] if self.reason is None else [f"{self.lake} cannot be read: {self.reason}"]
        return [*self.wrong, *lake, *lines]


def read_overview(
    lake: Lake, streams: Sequence[Stream], now: datetime | None = None, wrong: Sequence[str] = ()
) -> Overview:
    at = now or datetime.now(UTC)
    recorded = Recorded(lake, at - timedelta(days=WINDOW_DAYS))
    overview = Overview(lake=lake.root, now=at, wrong=wrong)
    try:
        is_empty = not lake.is_delta_table(lake.ops("runs"))
        by_graph = sorted(streams, key=lambda each: (*ancestors_of(each.name)[::-1], each.name))
        lines = tuple(line_of(recorded, stream, at) for stream in by_graph)
    except READ_ERRORS as error:
        return replace(overview, reason=first_line(error))
    return replace(overview, is_empty=is_empty, lines=lines)


def line_of(
    recorded: Recorded, stream: Stream, now: datetime, days: int | None = WINDOW_DAYS
) -> StreamLine:
    """The line of one stream; `problem` says if its table, or bronze, cannot be read."""
    found = recorded.open_findings(stream)
    known = _by_schedule(stream, now) | _runs(recorded, stream) | _state(recorded, stream)
    try:
        status = recorded.statuses.of(stream)
        data = recorded.data_us(stream.source)
    except READ_ERRORS as error:
        known["problem"] = f"the status of its table is unknown: {first_line(error)}"
    else:
        table = status.table_status
        if table.until_us is not None:  # a rebuild --until has set back what runs recorded
            known["until"] = instant_of(table.until_us)
        known |= {"status": status, "days": days_of(table, now, days, data)}
        # A restatement or a rebuild may have mended the table since the check.
        over = OF_STATUS - {finding.finding for finding in status.findings}
        found = [row for row in found if row["finding"] not in over]
    return StreamLine(**known, found=tuple(found))


def bare_line(stream: Stream, now: datetime, problem: str) -> StreamLine:
    """The line of a stream whose figures cannot be read."""
    return StreamLine(**_by_schedule(stream, now), problem=problem)


def _by_schedule(stream: Stream, now: datetime) -> dict[str, Any]:
    ticks = croniter(stream.schedule, now)
    following = ticks.get_next(datetime)
    ticks.get_prev(datetime)
    before = ticks.get_prev(datetime)  # two intervals: one of a Monday may have a weekend in it
    return {
        "stream": stream.name,
        "source": stream.source,
        "reads": parents_of(stream.name),
        "depth": len(ancestors_of(stream.name)),
        "schedule": stream.schedule,
        "until_lag_promised": stream.fresh_within or following - before + stream.watermark_delay,
        "next_run": following,
        "now": now,
    }


def _runs(recorded: Recorded, stream: Stream) -> dict[str, Any]:
    """The figures of the window's runs, and of the newest one, a rebuild or failed ingestion too."""
    run, source = (RUN, stream.name), (INGEST, stream.source)
    own, taken_in = recorded.counted.get(run, {}), recorded.counted.get(source, {})
    done = recorded.succeeded.get(run, {})
    ingested = recorded.newest.get(source, {"outcome": None})
    candidates = [recorded.newest.get(run), recorded.succeeded.get((REBUILD, stream.name))]
    candidates += [ingested] if ingested["outcome"] == "failed" else []
    last = max(filter(None, candidates), key=itemgetter("ended_at"), default=None)
    known = {
        "until": done.get("until"),
        "runs": own.get("count_all", 0),
        "rows_pending": done.get("rows_pending"),
        "rows": {
            "in": own.get("rows_in_sum") or 0,
            "late": own.get("rows_late_sum") or 0,
            "quarantined": taken_in.get("rows_quarantined_sum") or 0,
        },
    }
    if last is not None:
        of = f"ingestion of {stream.source}: " if last is ingested else ""
        known |= {
            "run_end": last["ended_at"],
            "last_outcome": last["outcome"],
            "last_error": last["error"] and f"{of}{last['error']}",
            "run_seconds": (last["ended_at"] - last["started_at"]).total_seconds(),
        }
    return known


def _state(recorded: Recorded, stream: Stream) -> dict[str, Any]:
    newest = newest_savepoint(recorded.lake, stream.name)
    measured = recorded.measured.get(stream.name)
    return {
        "state_keys": newest and newest.keys,
        "keys_at": newest and newest.until,
        "state_bytes": measured and measured.state_bytes,
        "checkpoint_bytes": measured and measured.bytes,
    }


PREFIX = "stateful_lake"


def metrics_text(overview: Overview) -> str:
    """All gauges of a lake in Prometheus' text format; of one that cannot be read `up 0.0` is the only sample."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest  # what no page needs

    registry = CollectorRegistry()
    for name, figure in METRICS.items():
        labels = ["stream", *filter(None, [figure.label])]
        gauge = Gauge(f"{PREFIX}_{name}", figure.help, labels, registry=registry)
        for line in overview.lines:
            value = getattr(line, figure.name)
            kinds = value or {} if figure.label else {"": value}
            for kind, of_kind in kinds.items():
                if of_kind is not None:
                    gauge.labels(line.stream, *filter(None, [kind])).set(_number(of_kind))
    up = Gauge(f"{PREFIX}_up", "1 if the lake could be read", registry=registry)
    up.set(overview.reason is None)
    return generate_latest(registry).decode()


def _number(value: datetime | timedelta | float) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def run_report(lake: Lake, stream: Stream, *, since: datetime, now: datetime) -> str:
    """Counts of the runs of `stream` and its source since then, and open findings; "" without runs."""
    recorded = Recorded(lake, now - timedelta(days=WINDOW_DAYS), stream)
    lines = []
    for job, subject, words in ((INGEST, stream.source, INGESTED), (RUN, stream.name, FOLDED)):
        run = recorded.newest.get((job, subject))
        if run is not None and run["ended_at"] >= since:
            counts = (f"{run[name] or 0:,} {word}" for name, word in words.items())
            lines.append(f"rows of {subject}: {', '.join(counts)}")
    if not lines:
        return ""
    found = finding_lines(recorded.open_findings(stream), stream.name)
    return "\n".join(["; ".join(lines), *found])
