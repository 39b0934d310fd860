"""Replays of bronze, planned: what restatements and rebuilds have in common; restatements of an
interval, or of each of a backfill; what shares a JVM, what rebuilds.

From the lake alone, without a JVM; the job does what its own plan says, made under the lease.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from statistics import median
from typing import ClassVar, Literal

from croniter import croniter, croniter_range
from deltalake.exceptions import DeltaError

from include.fold.admission import US_PER_MS, instant_of, micros_of
from include.fold.definition import KeyedFold
from include.lake.dead_letters import dead_letters_now
from include.lake.delta_log import commit_hash
from include.lake.errors import LakeError, SettingsError, wrong_argument
from include.lake.generations import GenerationRow
from include.lake.paths import Lake
from include.lake.stream_result import complete_until, replaced_by
from include.settings import Stream
from include.stream.bronze import BronzeVersion, count_before, newest_bronze
from include.stream.manifest import Savepoint, StartingSavepoint, choose_start, savepoints_of
from include.stream.open_stream import OpenStream
from include.stream.record import Entry, StreamRecord
from include.stream.stream_status import judged, state_between, stream_status
from include.stream_definition import load_definition
from include.text_table import counted, text_table


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Pinned bronze folded anew from a base until an instant, for rows from another on."""

    kind: ClassVar[Literal["restate", "rebuild"]]
    opened: OpenStream
    bronze: BronzeVersion
    base: StartingSavepoint
    until_us: int

    @property
    def lake(self) -> Lake:
        return self.opened.lake

    @property
    def fold(self) -> KeyedFold:
        return self.opened.fold

    @property
    def code(self) -> str:
        """The code that its states come of."""
        return self.base.lineage(self.opened.identity.code)

    @property
    def row(self) -> GenerationRow:
        """The row of the generation that its rows are of."""
        raise NotImplementedError

    @property
    def from_us(self) -> int | None:
        """The first instant whose rows are replaced; None: all are."""
        raise NotImplementedError

    @property
    def end_us(self) -> int | None:
        """The end of what is replaced; a rebuild's has none: what live has emitted beyond `until_us`
        it will emit again."""
        return self.until_us if self.kind == "restate" else None

    @property
    def dead_letters_from_us(self) -> int | None:
        """The first instant whose dead letters are replaced, of an update table too."""
        if self.kind == "restate":
            return self.from_us
        return self.base.until_us if self.base.savepoint else None

    def record(self, run_id: str, savepoint: Savepoint) -> StreamRecord:
        """The stream's once its rows are there; a rebuild's has the savepoint of live's start."""
        row, base, bronze = self.row, self.base, self.bronze
        if self.kind == "rebuild":
            seed = {"seed_savepoint": savepoint.savepoint_id, "seed_events": savepoint.events}
            row = GenerationRow({**row, **seed, "switched_at_us": micros_of(datetime.now(UTC))})
        entry = Entry(
            kind=self.kind,
            from_us=self.from_us,
            until_us=self.until_us,
            generation=row["generation"],
            run_id=run_id,
            delay_us=row["watermark_delay_ms"] * US_PER_MS,
            codes=(self.code,),
            bronze_id=bronze.table_id,
            bronze_version=bronze.version,
            bronze_ingested_at_us=bronze.ingested_at_us,
            read_version=bronze.version,
            read_commit=commit_hash(self.lake, bronze.path, bronze.version),
            mapped_from=base.savepoint.code if base.mapped and base.savepoint else None,
        )
        dead_letters = dead_letters_now(self.lake, self.opened.name)
        return replace(self.opened.record, row=row, **dead_letters).with_entry(entry)


def seconds_for(lake: Lake, stream: str, *rows: int) -> float | None:
    """The seconds that replays of so many rows take, by recorded ones; None without any."""
    recorded = [
        (row["rows_in"], (row["ended_at"] - row["started_at"]).total_seconds())
        for row in replaced_by(lake, stream)
        if row["ended_at"] > row["started_at"]
    ]
    if not recorded:
        return None
    typical = float(median(seconds for _, seconds in recorded))
    rate = max(read / seconds for read, seconds in recorded)
    return sum(max(typical, count / rate) if rate else typical for count in rows)


COLUMNS = ("from (UTC)", "until", "now", "rows to read")
SHOWN = 40
MOST_RUNS = 60_000  # a year of them, ten minutes each


@dataclass(frozen=True)
class PlannedRun:
    """The restate of one interval, which begins where the one before it ends."""

    start: datetime
    until: datetime
    rows_to_read: int
    now: str  # whether the table is right there, or why not


@dataclass(frozen=True, kw_only=True)
class RestatePlan(Replay):
    """Restates, decided: of intervals, each from the end of the one before."""

    kind = "restate"
    runs: Sequence[PlannedRun]
    estimated_seconds: float | None  # of all; None: no recorded one of the stream to go by
    complete: datetime  # the stream is complete before this instant
    incomplete: int  # refused intervals: they end later
    early: int  # ... and an initial state stands for them

    @property
    def row(self) -> GenerationRow:
        return self.opened.generations.pinned()

    @property
    def from_us(self) -> int:
        return micros_of(self.runs[0].start)

    def text(self) -> str:
        """The plan for people."""
        runs, seconds = self.runs, self.estimated_seconds
        took = "nothing is recorded yet to estimate the time by"
        if seconds is not None:
            took = f"in about {timedelta(seconds=round(seconds))}"
        rows = counted(sum(run.rows_to_read for run in runs), "row")
        lines = [
            f"restate {self.opened.name}: {counted(len(runs), 'interval')}, from which {rows} of bronze "
            f"(version {self.bronze.version}) are replayed, from {self.base.text()} on; {took}",
            *text_table(COLUMNS, [_cells(run) for run in runs[:SHOWN]]),
        ]
        if len(runs) > SHOWN:
            lines.append(f"  ... and {len(runs) - SHOWN:,} more")
        if self.early or self.incomplete:
            lines.append(
                f"and {self.early:,} that the initial state stands for, and {self.incomplete:,} that are "
                f"not complete (the stream is complete until {self.complete:%Y-%m-%d %H:%M:%S} UTC): "
                "refused"
            )
        return "\n".join(lines)


def plan_restate(opened: OpenStream, start: datetime, until: datetime) -> RestatePlan:
    """The plan for `[start, until)`, on the stream's clock."""
    _refuse_empty(start, until)
    return _planned(opened, [(start, until)])


def plan_backfill(opened: OpenStream, start: datetime, until: datetime) -> RestatePlan:
    """The same for the intervals of the stream's schedule that begin in `[start, until)`."""
    _refuse_empty(start, until)
    schedule = opened.declared.schedule
    intervals = schedule_intervals(schedule, start, until)
    if not intervals:
        raise wrong_argument(
            "FROM", f"no interval of the schedule {schedule!r} begins from {start} until {until}"
        )
    return _planned(opened, intervals)


def _refuse_empty(start: datetime, until: datetime) -> None:
    if start >= until:
        raise wrong_argument("UNTIL", f"UNTIL must be after FROM, and {until} is not after {start}")


def _planned(opened: OpenStream, intervals: Sequence[tuple[datetime, datetime]]) -> RestatePlan:
    lake, identity, name = opened.lake, opened.identity, opened.name
    opened.refuse_run()
    if identity.output_mode == "update":
        raise SettingsError(
            f"the table of {name} shows the live state, and no row of it is an interval's: "
            "a rebuild takes late rows into both",
            code="no_interval",
            subject=name,
            command=f"./stateful rebuild {name} --apply",
        )
    complete = check_complete(lake, opened.declared, intervals[0][1])
    opened.trusted()
    closed = [interval for interval in intervals if interval[1] <= complete]
    since_us = identity.since_us
    open_ = [i for i in closed if since_us is None or micros_of(i[1]) > since_us]
    if not open_:
        raise SettingsError(
            f"the initial state of {name} stands for all before {instant_of(since_us or 0)}",
            code="before_initial_state",
            subject=name,
        )
    edges_us = [micros_of(edge) for edge in (open_[0][0], *(until for _, until in open_))]
    bronze = newest_bronze(lake, opened.source)
    base = choose_start(savepoints_of(lake, name), identity, bronze, at_most_us=edges_us[0])
    events = count_before(bronze, identity.time_column, since_us, cutoffs_us=edges_us)
    rows = [after - before for before, after in pairwise([base.events, *events[1:]])]
    table_status = judged(opened, identity)
    runs = [
        PlannedRun(*edges, count, state_between(table_status, *map(micros_of, edges)))
        for edges, count in zip(open_, rows, strict=True)
    ]
    return RestatePlan(
        opened=opened,
        bronze=bronze,
        base=base,
        until_us=edges_us[-1],
        runs=runs,
        estimated_seconds=seconds_for(lake, name, *rows),
        complete=complete,
        incomplete=len(intervals) - len(closed),
        early=len(closed) - len(open_),
    )


def _cells(run: PlannedRun) -> list[str]:
    return [
        f"{run.start:%Y-%m-%d %H:%M}",
        f"{run.until:%Y-%m-%d %H:%M}",
        run.now,
        f"{run.rows_to_read:,}",
    ]


def check_complete(lake: Lake, stream: Stream, until: datetime) -> datetime:
    """The instant that live has completed; SettingsError unless that is `until` or later."""
    complete = complete_until(lake, stream.name)
    if complete is not None and until <= complete:
        return complete
    raise SettingsError(
        f"{stream.name} is not complete until {until:%Y-%m-%d %H:%M:%S} UTC: run it once an event "
        f"after {until + stream.watermark_delay:%Y-%m-%d %H:%M:%S} UTC is in bronze",
        code="not_complete",
        subject=stream.name,
        command=f"./stateful stream {stream.name}",
    )


def schedule_intervals(
    schedule: str, start: datetime, until: datetime
) -> list[tuple[datetime, datetime]]:
    """The data intervals, between two ticks of the cron expression, that begin in `[start, until)`.

    At most MOST_RUNS: a year that was mistyped would be counted for hours.
    """
    try:
        found = islice(croniter_range(start, until, schedule), MOST_RUNS + 1)
        begun = [tick for tick in found if tick < until]
        ticks = [*begun, next_tick(schedule, begun[-1])] if begun else []
    except (OverflowError, ValueError) as error:  # it looks at the years before and after, too
        said = f"no schedule goes from {start} until {until}"
        raise wrong_argument("FROM", said) from error
    if len(begun) > MOST_RUNS:
        raise SettingsError(
            f"more than {MOST_RUNS:,} intervals begin from {start} until {until}: give a shorter time",
            code="too_much",
            subject="UNTIL",
        )
    return list(pairwise(ticks))


def next_tick(schedule: str, start: datetime) -> datetime:
    """Where the interval that begins at `start` ends."""
    tick: datetime = croniter(schedule, start).get_next(datetime)
    return tick


# To either side. Airflow takes the dates in a URL, and a backfill starts its runs in order, so
# those of it that wait are next to the one that runs.
NEAR = 50


def why_not_rebuild(
    lake: Lake, stream: Stream, start: datetime, queued: Callable[[Sequence[datetime]], int]
) -> str | None:
    """Why the run whose interval begins at `start` leaves it; None when it is to rebuild.

    `queued` tells how many runs of these logical dates wait, without those that run already: two of
    these would leave it to each other.
    """
    if stream_status(lake, stream).live_is_right:
        return f"the live state of {stream.name} is right: there is nothing to rebuild"
    waiting = queued(near_dates(stream.schedule, start, complete_until(lake, stream.name)))
    if waiting:
        return f"the backfill has {counted(waiting, 'more run')} queued: the last one rebuilds"
    return None


def near_dates(schedule: str, start: datetime, complete: datetime | None) -> list[datetime]:
    """The logical dates next to `start`, of intervals that end by `complete`."""
    back, ahead = croniter(schedule, start), croniter(schedule, start)
    before = [back.get_prev(datetime) for _ in range(NEAR)]
    ticks = [ahead.get_next(datetime) for _ in range(NEAR + 1)]
    after = [date for date, end in pairwise(ticks) if complete is not None and end <= complete]
    return before + after


log = logging.getLogger("job")
MOST = 100
# Of the task's timeout that all of them may take, by what was recorded.
SHARE = 0.25
UNKNOWN = timedelta(seconds=60)  # of one, before any is recorded


def last_waiting_end(
    lake: Lake, stream: Stream, until: datetime, queued: Callable[[Sequence[datetime]], int]
) -> datetime:
    """The end of the intervals that are restated in one piece with the one before `until`: by the
    schedule, as long as a Dag run of each waits, and live has completed it."""
    complete = complete_until(lake, stream.name)
    end = until.astimezone(UTC)
    for _ in range(_most(lake, stream) - 1):
        following = next_tick(stream.schedule, end)
        if complete is None or following > complete or not queued([end]):
            break
        end = following
    return end


def _most(lake: Lake, stream: Stream) -> int:
    """How many intervals one job may restate."""
    seconds = seconds_for(lake, stream.name, 0) or UNKNOWN.total_seconds()
    return min(MOST, max(1, int(stream.timeout.total_seconds() * SHARE / seconds)))


def has_nothing_to_change(lake: Lake, stream: Stream, start: datetime, until: datetime) -> bool:
    """Whether a restatement of `[start, until)` would change nothing: the table is right there, or
    shows the live state. What cannot be told, the job is to say."""
    if load_definition(stream).fold.output_mode == "update":
        return True
    try:
        judged = stream_status(lake, stream)
    except (DeltaError, LakeError, OSError, SettingsError) as error:
        log.warning("%s: restated, whatever was before: %s", stream.name, error)
        return False
    known_until_us = judged.table_status.until_us
    if known_until_us is None or known_until_us < micros_of(until):
        return False  # a rewind has taken it back: nothing is wrong there, as nothing is there
    between = state_between(judged.table_status, micros_of(start), micros_of(until))
    return judged.doubt is None and between == "right"
