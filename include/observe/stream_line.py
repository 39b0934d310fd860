"""All streams, a line each: how complete, how right, how big, and what people should look at.

Read from `ops` and bronze, without a JVM. Nothing is raised for a lake that cannot be read: what
is wrong with it is what a page has to show.

What `ops` has of all streams, read once: of each table the columns that are shown; and of what was
found, what is open.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from croniter import croniter
from deltalake.exceptions import DeltaError

from include.fold.admission import instant_of, micros_of
from include.lake.delta_log import first_line, open_table
from include.lake.errors import LakeError
from include.lake.findings import SEVERITIES, Finding, finding_lines, record_findings
from include.lake.ops import not_ahead, read_ops
from include.lake.paths import Lake
from include.settings import Stream
from include.stream.bronze_pin import BronzeFiles
from include.stream.judge import OF_COVERAGE, Coverage, LateGroup, Reason, late_groups
from include.stream.manifest import newest_savepoint
from include.stream.stream_status import StreamStatus, stream_status
from include.text_table import counted

Row = Mapping[str, Any]
RUN, INGEST, RESEED = "run_stream", "ingest_source", "reseed_stream"
SUMMED = ("rows_in", "rows_late", "rows_landed", "rows_quarantined", "rows_rescued")
RUN_COLUMNS = (
    *("run_id", "job", "subject", "started_at", "ended_at", "outcome", "error"),
    *("rows_pending", "rows_out", "until", *SUMMED),
)
FINDING_COLUMNS = (
    *("run_id", "found_at", "subject", "finding", "severity", "count", "detail", "action"),
)
SIZE_COLUMNS = ("stream", "measured_at", "part", "bytes")
# Lost for good: open until a person has said, by `./stateful ingest SOURCE --accept-loss`, that it may be.
LOST, ACCEPTED = ("rows_skipped", "versions_ignored"), "loss_accepted"
# Said by each batch, or each command, of what it did itself. All else is said anew as a whole.
EACH_ITS_OWN = {"rows_dead_lettered", "rows_quarantined", *LOST}
# A check comes after each run. Some of these may have failed.
UNCHECKED = timedelta(days=2)


@dataclass(frozen=True)
class RunsOf:
    """The runs of a job and a subject."""

    newest: Row
    succeeded: Row  # the newest of these; {} without any
    count: int  # in the window
    began: datetime | None  # the first in the window
    sums: Mapping[str, int]  # of SUMMED, in the window


@dataclass(frozen=True)
class Recorded:
    """The rows that a page of all streams is made of; each table is read when it is asked for."""

    lake: Lake
    since: datetime  # of what is counted over a time: the window's beginning
    only: Stream | None = None  # of it and of its source is asked; None: of all
    _data_us: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)

    def in_window(
        self,
        name: str,
        by: str,
        where: Mapping[str, Any],
        columns: Sequence[str] | None = None,
        since: datetime | None = None,
    ) -> list[Row]:
        """Rows of `ops/<name>` whose instant `by` lies in the window, in its order.

        `since`: in place of the window's beginning.
        """
        asked = None if columns is None else [*{*columns, by}]
        rows = read_ops(self.lake, name, where, asked, since=(by, since or self.since)).to_pylist()
        return sorted(rows, key=itemgetter(by))

    @cached_property
    def runs(self) -> Mapping[tuple[str, str], RunsOf]:
        """Of each job and subject, its runs."""
        rows = self._read_runs()
        done = rows.filter(pc.equal(rows["outcome"], "succeeded"))
        window = rows.filter(pc.greater_equal(rows["ended_at"], pa.scalar(self.since)))
        succeeded = _by_group(done, [("at", "max")])
        counted = [("started_at", "min"), ([], "count_all"), *((name, "sum") for name in SUMMED)]
        counts = _by_group(window, counted)
        return {
            of: RunsOf(
                newest=_row(rows, group),
                succeeded=_row(rows, succeeded[of]) if of in succeeded else {},
                count=counts.get(of, {}).get("count_all", 0),
                began=counts.get(of, {}).get("started_at_min"),
                sums={name: counts.get(of, {}).get(f"{name}_sum") or 0 for name in SUMMED},
            )
            for of, group in _by_group(rows, [("at", "max")]).items()
        }

    def _read_runs(self) -> pa.Table:
        """In order, with their number `at`."""
        rows = read_ops(self.lake, "runs", None, RUN_COLUMNS, before=("ended_at", not_ahead()))
        rows = rows.filter(pc.is_in(rows["job"], pa.array([RUN, INGEST, RESEED])))
        if self.only is not None:
            names = pa.array([self.only.name, self.only.source])
            rows = rows.filter(pc.is_in(rows["subject"], names))
        return rows.sort_by("ended_at").append_column("at", pa.array(range(rows.num_rows)))

    @cached_property
    def findings(self) -> Mapping[str, Sequence[Row]]:
        """Of each subject, those found since its newest run began, or in the window; all that is lost."""
        began = (runs.newest["started_at"] for runs in self.runs.values())
        wanted = pc.field("found_at") >= pa.scalar(min([self.since, *began]))
        wanted |= pc.field("finding").isin([*LOST, ACCEPTED])
        rows = read_ops(self.lake, "findings", columns=FINDING_COLUMNS, wanted=wanted)
        found: dict[str, list[Row]] = defaultdict(list)
        for row in rows.to_pylist():
            found[row["subject"]].append(row)
        return found

    @cached_property
    def sizes(self) -> Mapping[tuple[str, str], int]:
        """Bytes of each stream's checkpoint when it was last measured: of its `state`, and `all`."""
        ran = [runs.newest["started_at"] for (job, _), runs in self.runs.items() if job == RUN]
        since = ("measured_at", min(ran, default=self.since) - UNCHECKED)
        where = {} if self.only is None else {"stream": self.only.name}
        rows = read_ops(self.lake, "checkpoint_sizes", where, SIZE_COLUMNS, since)
        of_state = rows.filter(pc.equal(rows["part"], "state"))
        sizes = {}
        for part, measured in (("all", rows), ("state", of_state)):
            sums = measured.group_by(["stream", "measured_at"]).aggregate([("bytes", "sum")])
            for row in sums.sort_by("measured_at").to_pylist():  # the newest last
                sizes[row["stream"], part] = row["bytes_sum"]
        return sizes

    def status(self, stream: Stream) -> StreamStatus:
        """The verdict on the table of `stream`, as of now."""
        return stream_status(self.lake, stream, self._read_late)

    def data_us(self, source: str) -> tuple[int | None, int | None]:
        """Between these two the rows of a source's bronze lie; None where there are none."""
        if source not in self._data_us:
            path, ends = self.lake.bronze(source), (None, None)
            if self.lake.is_delta_table(path):
                first, last = BronzeFiles(open_table(path)).span("event_time")
                ends = (pc.min(first).as_py(), pc.max(last).as_py())
            self._data_us[source] = ends
        return self._data_us[source]

    @cached_property
    def _read_late(self) -> Callable[..., list[LateGroup]]:
        # Many streams of a source have one delay, and no pin.
        return lru_cache(None)(late_groups)


def _by_group(rows: pa.Table, figures: Sequence[tuple[Any, str]]) -> dict[tuple[str, str], Row]:
    groups = rows.group_by(["job", "subject"]).aggregate(figures)
    return {(row["job"], row["subject"]): row for row in groups.to_pylist()}


def _row(rows: pa.Table, group: Row) -> Row:
    """The row that a group names by `at_max`."""
    return rows.slice(group["at_max"], 1).to_pylist()[0]  # type: ignore[no-any-return]


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
    found = [*open_losses(recorded, subject), *(r for r in found if r["finding"] not in LOST)]
    if mended := mended_run(recorded, subject):
        found = [row for row in found if row["run_id"] != mended["run_id"]]
    return newest_of_each(found, ("finding",))


def open_losses(recorded: Recorded, subject: str) -> list[Row]:
    """What is lost for good, and nobody has accepted yet, whenever it was found."""
    rows = recorded.findings.get(subject, ())
    accepted = [row["found_at"] for row in rows if row["finding"] == ACCEPTED]
    since = max(accepted, default=datetime.min.replace(tzinfo=UTC))
    return [row for row in rows if row["finding"] in LOST and row["found_at"] > since]


def record_accepted(lake: Lake, source: str) -> None:
    """That somebody has seen what was lost until now: the findings on it are over."""
    found = Finding(finding=ACCEPTED, severity="info", detail="what was lost is accepted")
    record_findings(lake, None, source, [found])


def mended_run(recorded: Recorded, subject: str) -> Row | None:
    """The newest run of a stream, if it has failed and a reseed has made all anew since."""
    runs, reseeds = (recorded.runs.get((job, subject)) for job in (RUN, RESEED))
    if runs is None or reseeds is None or runs.newest["outcome"] != "failed":
        return None
    done = reseeds.succeeded
    return runs.newest if done and done["ended_at"] > runs.newest["ended_at"] else None


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


Status = Literal["right", "late", "code", "unproved", "unsettled", "none"]
STATUS_OF: dict[Reason | None, Status] = {
    None: "right",
    "late rows": "late",
    "other code": "code",
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
    "none": "no data",
}
DAY_US = 86_400 * 10**6
EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Day:
    """A day (UTC) of a table, and how right it is."""

    date: date
    status: Status


def days_of(
    coverage: Coverage, now: datetime, count: int, first_us: int | None = None
) -> tuple[Day, ...]:
    """The newest `count` days up to that of `now`, in order; `first_us`: where the data begin, before
    which nothing is right or wrong."""
    newest = micros_of(now) // DAY_US
    return tuple(
        _day(coverage, number, first_us) for number in range(newest - count + 1, newest + 1)
    )


def days_text(days: Sequence[Day]) -> str:
    """The bar in words: "27 days right, 3 days late rows missing"."""
    counts = Counter(day.status for day in days)
    return ", ".join(
        f"{counted(counts[s], 'day')} {WORDS[s]}" for s in reversed(WORST) if counts[s]
    )


def _day(coverage: Coverage, number: int, first_us: int | None) -> Day:
    """Of the day of that number since 1970."""
    from_us, until_us = number * DAY_US, (number + 1) * DAY_US
    spans = [s for s in coverage.spans if s.from_us < until_us and from_us < s.until_us]
    statuses = {STATUS_OF[span.reason] for span in spans}
    if coverage.until_us is None:
        statuses.add("none")
    elif coverage.until_us < until_us:
        statuses.add("unsettled")
    if first_us is not None and until_us <= first_us:
        statuses = {"none"}
    status = next(status for status in WORST if status in statuses)
    return Day(EPOCH + timedelta(days=number), status)


WINDOW_DAYS = 30
# Of what was recorded or lies there: a page says so, and shows the rest. Instants that Arrow has
# and Python has not, beyond the year 9999, overflow.
READ_ERRORS = (LakeError, OSError, OverflowError, ValueError, pa.ArrowException, DeltaError)
State = Literal["filled", "empty", "unreadable"]
# Of a stream's rows, and of its source's; and the columns of ops/runs that count them.
KINDS = {"in": "rows_in", "late": "rows_late", "quarantined": "rows_quarantined"}


@dataclass(frozen=True, kw_only=True)
class StreamLine:
    """A stream in brief; what the catalogue has a metric for is called as there.

    Rows are of the window; a figure of None was never recorded.
    """

    stream: str
    source: str
    schedule: str
    until: datetime | None = None
    until_lag_promised: (
        timedelta  # `fresh_within`, or what a run a tick comes to: two ticks and the delay
    )
    next_run: datetime  # by its schedule
    now: datetime
    run_end: datetime | None = None
    last_outcome: str | None = None
    last_error: str | None = None
    run_seconds: float | None = None
    runs: int = 0
    rows: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    rows_pending: int | None = None
    state_keys: int | None = None  # of the newest savepoint
    keys_at: datetime | None = None  # the instant of that
    state_bytes: int | None = None
    checkpoint_bytes: int | None = None
    found: Sequence[Row] = ()  # open findings, the worst first
    mended: Set[str] = frozenset()  # findings on the table that a recompute or reseed has put right
    days: tuple[Day, ...] = ()
    trouble: str | None = None  # why the rest of the line is not there

    @property
    def until_lag(self) -> timedelta | None:
        return None if self.until is None else self.now - self.until

    @property
    def is_behind(self) -> bool:
        """Whether its table is further behind than its schedule explains."""
        return self.until_lag is not None and self.until_lag > self.until_lag_promised

    @property
    def run_failed(self) -> bool | None:
        return None if self.run_end is None else self.last_outcome == "failed"

    @property
    def findings(self) -> Mapping[str, int]:
        """How many are open, by severity."""
        return {s: sum(row["severity"] == s for row in self.found) for s in SEVERITIES}

    @property
    def dates_not_right(self) -> Mapping[str, int] | None:
        """How many of its days are not, by why; None where that is not known."""
        counts = Counter(day.status for day in self.days)
        return {why: counts[why] for why in reversed(NOT_RIGHT)} if self.days else None


@dataclass(frozen=True, kw_only=True)
class Overview:
    """All streams of a lake at an instant."""

    lake: str
    now: datetime
    state: State
    reason: str | None = None  # unreadable: why
    lines: tuple[StreamLine, ...] = ()
    wrong: tuple[str, ...] = ()  # what is wrong with files of include/streams

    @property
    def unread(self) -> list[str]:
        """What could not be read, and why."""
        lines = [f"{line.stream}: {line.trouble}" for line in self.lines if line.trouble]
        lake = [] if self.reason is None else [f"{self.lake} cannot be read: {self.reason}"]
        return [*self.wrong, *lake, *lines]


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
    return replace(line_without_state(recorded, stream, now), **_state(recorded, stream))


def line_without_state(recorded: Recorded, stream: Stream, now: datetime) -> StreamLine:
    """The same, from `ops`, bronze and the record of the table alone."""
    known = _by_schedule(stream, now) | _runs(recorded, stream)
    known["found"] = open_findings(recorded, stream)
    try:
        status = recorded.status(stream)
        first_us, _ = recorded.data_us(stream.source)
    except READ_ERRORS as error:
        known["trouble"] = f"whether its table is right cannot be told: {first_line(error)}"
    else:
        if status.coverage.until_us is not None:  # a rewind has taken back what runs had come to
            known["until"] = instant_of(status.coverage.until_us)
        known["days"] = days_of(status.coverage, now, WINDOW_DAYS, first_us=first_us)
        known["mended"] = OF_COVERAGE - {finding.finding for finding in status.findings}
        known["found"] = tuple(r for r in known["found"] if r["finding"] not in known["mended"])
    return StreamLine(**known)


def bare_line(stream: Stream, now: datetime, trouble: str) -> StreamLine:
    """The line of a stream of which nothing can be read."""
    return StreamLine(**_by_schedule(stream, now), trouble=trouble)


def _by_schedule(stream: Stream, now: datetime) -> dict[str, Any]:
    before, following = _ticks(stream.schedule, now)
    return {
        "stream": stream.name,
        "source": stream.source,
        "schedule": stream.schedule,
        "until_lag_promised": stream.fresh_within or following - before + stream.watermark_delay,
        "next_run": following,
        "now": now,
    }


@lru_cache(maxsize=1_000)
def _ticks(schedule: str, now: datetime) -> tuple[datetime, datetime]:
    """The tick before the newest one, and the next: on a Monday there is a weekend between."""
    ticks = croniter(schedule, now)
    following = ticks.get_next(datetime)
    ticks.get_prev(datetime)
    return ticks.get_prev(datetime), following


def _runs(recorded: Recorded, stream: Stream) -> dict[str, Any]:
    of = ((INGEST, stream.source), (RUN, stream.name), (RESEED, stream.name))
    taken_in, runs, reseeds = (recorded.runs.get(each) for each in of)
    sums = {} if taken_in is None else {**taken_in.sums}
    known: dict[str, Any] = {}
    if runs is not None:
        sums |= {name: runs.sums[name] for name in ("rows_in", "rows_late")}
        known = {
            "until": runs.succeeded.get("until"),
            "runs": runs.count,
            "rows_pending": runs.succeeded.get("rows_pending"),
        }
        is_mended = reseeds is not None and mended_run(recorded, stream.name)
        known |= _last(reseeds.succeeded if reseeds and is_mended else runs.newest)
    known["rows"] = {kind: sums.get(name, 0) for kind, name in KINDS.items()}
    # No run is begun after an ingestion that failed, so that none says that it did.
    if taken_in is not None and taken_in.newest["outcome"] == "failed":
        failed = taken_in.newest
        if runs is None or known["run_end"] < failed["ended_at"]:
            error = f"ingestion of {stream.source}: {failed['error']}"
            known |= {"run_end": failed["ended_at"], "last_outcome": "failed", "last_error": error}
    return known


def _last(run: Row) -> dict[str, Any]:
    """What a line says of the newest run."""
    return {
        "run_end": run["ended_at"],
        "last_outcome": run["outcome"],
        "last_error": run["error"],
        "run_seconds": (run["ended_at"] - run["started_at"]).total_seconds(),
    }


def _state(recorded: Recorded, stream: Stream) -> dict[str, Any]:
    newest = newest_savepoint(recorded.lake, stream.name)
    return {
        "state_keys": newest and newest.keys,
        "keys_at": newest and newest.until,
        "state_bytes": recorded.sizes.get((stream.name, "state")),
        "checkpoint_bytes": recorded.sizes.get((stream.name, "all")),
    }


# Of a source's run and of a stream's, columns of ops/runs in words.
TAKEN = {"rows_landed": "taken", "rows_quarantined": "refused", "rows_rescued": "rescued"}
FOLDED = {"rows_in": "read", "rows_late": "late", "rows_pending": "pending", "rows_out": "written"}


def run_report(lake: Lake, stream: Stream, *, since: datetime, now: datetime) -> str:
    """Counts of the runs of `stream` and its source since then, and open findings; empty where none ran."""
    recorded = Recorded(lake, now - timedelta(days=WINDOW_DAYS), stream)
    rows = [
        _counts(recorded, INGEST, stream.source, since=since, words=TAKEN),
        _counts(recorded, RUN, stream.name, since=since, words=FOLDED),
    ]
    if not any(rows):
        return ""
    # As the check after the run has found them: the table is not judged again.
    found = finding_lines(open_findings(recorded, stream), stream.name)
    return "\n".join(["; ".join(filter(None, rows)), *found])


def _counts(
    recorded: Recorded, job: str, subject: str, *, since: datetime, words: dict[str, str]
) -> str:
    runs = recorded.runs.get((job, subject))
    if runs is None or runs.newest["ended_at"] < since:
        return ""
    counts = (f"{runs.newest[name] or 0:,} {word}" for name, word in words.items())
    return f"rows of {subject}: {', '.join(counts)}"
