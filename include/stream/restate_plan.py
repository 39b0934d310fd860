"""The plan of a restatement, which runs of a backfill carry one out, and `Replay`, the base of all plans
that replay bronze.

A plan is made from the lake alone, without a JVM; a job makes its own under the stream's lease.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median
from typing import ClassVar, Literal

from croniter import croniter
from deltalake.exceptions import DeltaError

from include.fold.admission import US_PER_MS, instant_of, micros_of
from include.lake.dead_letters import dead_letters_now
from include.lake.delta_log import commit_hash
from include.lake.errors import LakeError, SettingsError, wrong_argument
from include.lake.generations import GenerationRow, complete_until
from include.lake.ops import replaced_by
from include.lake.paths import Lake
from include.settings import Stream
from include.stream.bronze import BronzeVersion, count_before, newest_bronze
from include.stream.manifest import (
    Savepoint,
    StartingSavepoint,
    choose_starting_savepoint,
    savepoints_of,
)
from include.stream.open_stream import OpenStream
from include.stream.record import RecordEntry, StreamRecord
from include.stream.stream_status import judged, state_between, stream_status
from include.stream_definition import load_definition
from include.text_table import counted


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A replay of one bronze version, from a starting savepoint until an instant in microseconds."""

    kind: ClassVar[Literal["restate", "rebuild"]]
    opened: OpenStream
    bronze: BronzeVersion
    starting: StartingSavepoint
    until_us: int

    @property
    def lake(self) -> Lake:
        return self.opened.lake

    @property
    def code(self) -> str:
        """The lineage of the states that it makes: the code, and a savepoint that was mapped."""
        return self.starting.lineage(self.opened.identity.code)

    @property
    def row(self) -> GenerationRow:
        """The generation that the replaced rows belong to."""
        raise NotImplementedError

    @property
    def from_us(self) -> int | None:
        """The first instant whose rows are replaced; None: all are."""
        raise NotImplementedError

    @property
    def end_us(self) -> int | None:
        """The instant before which rows are replaced; None: to the end of the table."""
        return self.until_us

    @property
    def dead_letters_from_us(self) -> int | None:
        """The first instant whose dead letters are replaced; None: all are."""
        return self.from_us

    def record(self, run_id: str, savepoint: Savepoint) -> StreamRecord:
        """The record of the commit that replaces the rows; `savepoint`: the state at `until_us`."""
        starting, bronze = self.starting, self.bronze
        entry = RecordEntry(
            kind=self.kind,
            from_us=self.from_us,
            until_us=self.until_us,
            generation=self.row["generation"],
            run_id=run_id,
            delay_us=self.row["watermark_delay_ms"] * US_PER_MS,
            codes=(self.code,),
            bronze_id=bronze.table_id,
            bronze_version=bronze.version,
            bronze_ingested_at_us=bronze.ingested_at_us,
            read_version=bronze.version,
            read_commit=commit_hash(self.lake, bronze.path, bronze.version),
            mapped_from=starting.savepoint.code if starting.mapped and starting.savepoint else None,
        )
        dead_letters = dead_letters_now(self.lake, self.opened.name)
        return replace(self.opened.record, row=self.row, **dead_letters).with_entry(entry)


def seconds_for(lake: Lake, stream: str, rows: int) -> float | None:
    """Estimate the seconds of a replay of so many rows by recorded ones; None without any."""
    recorded = [
        (row["rows_in"], (row["ended_at"] - row["started_at"]).total_seconds())
        for row in replaced_by(lake, stream)
        if row["ended_at"] > row["started_at"]
    ]
    if not recorded:
        return None
    typical = float(median(seconds for _, seconds in recorded))
    rate = max(read / seconds for read, seconds in recorded)
    return max(typical, rows / rate) if rate else typical


@dataclass(frozen=True, kw_only=True)
class RestatePlan(Replay):
    """The plan of the restatement of an interval."""

    kind = "restate"
    start: datetime
    rows_to_read: int
    now: str  # "right", or why the table is not right there
    estimated_seconds: float | None  # None: no replay of the stream is recorded

    @property
    def row(self) -> GenerationRow:
        return self.opened.generations.pinned()

    @property
    def from_us(self) -> int:
        return micros_of(self.start)

    def text(self) -> str:
        """Return the plan for a terminal, as a list in Markdown."""
        until = instant_of(self.until_us)
        parts = [
            f"restate {self.opened.name} from {self.start:%F %R} until {until:%F %R} UTC; now: {self.now}",
            f"replays {counted(self.rows_to_read, 'row')} of bronze (version {self.bronze.version}) "
            f"from {self.starting.text()}",
        ]
        if self.estimated_seconds is not None:
            parts.append(f"takes about {self.estimated_seconds:.0f} s")
        return "\n- ".join(parts)


def plan_restate(opened: OpenStream, start: datetime, until: datetime) -> RestatePlan:
    """Plan the restatement of `[start, until)`; SettingsError when it cannot be restated."""
    if start >= until:
        raise wrong_argument("UNTIL", f"UNTIL must be after FROM, and {until} is not after {start}")
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
    check_complete(lake, opened.declared, until)
    opened.trusted()
    from_us, until_us, since_us = micros_of(start), micros_of(until), identity.since_us
    if since_us is not None and until_us <= since_us:
        raise SettingsError(
            f"the initial state of {name} stands for all before {instant_of(since_us)}",
            code="before_initial_state",
            subject=name,
        )
    bronze, known = newest_bronze(lake, opened.source), savepoints_of(lake, name)
    starting = choose_starting_savepoint(known, identity, bronze, at_most_us=from_us)
    (events,) = count_before(bronze, identity.time_column, since_us, cutoffs_us=[until_us])
    rows = events - starting.events
    return RestatePlan(
        opened=opened,
        bronze=bronze,
        starting=starting,
        until_us=until_us,
        start=start,
        rows_to_read=rows,
        now=state_between(judged(opened, identity), from_us, until_us),
        estimated_seconds=seconds_for(lake, name, rows),
    )


def check_complete(lake: Lake, stream: Stream, until: datetime) -> None:
    """Raise SettingsError unless the stream is complete until then."""
    complete = complete_until(lake, stream.name)
    if complete is not None and until <= complete:
        return
    raise SettingsError(
        f"{stream.name} is not complete until {until:%Y-%m-%d %H:%M:%S} UTC: run it once an event "
        f"after {until + stream.watermark_delay:%Y-%m-%d %H:%M:%S} UTC is in bronze",
        code="not_complete",
        subject=stream.name,
        command=f"./stateful stream {stream.name}",
    )


def next_tick(schedule: str, start: datetime) -> datetime:
    """The end of the interval that begins at `start`."""
    tick: datetime = croniter(schedule, start).get_next(datetime)
    return tick


# Dates to either side. Airflow takes them in a URL, and a backfill starts its runs in order, so the
# waiting ones are next to the one that runs.
NEAR = 50


def why_not_rebuild(
    lake: Lake, stream: Stream, start: datetime, queued: Callable[[Sequence[datetime]], int]
) -> str | None:
    """The reason why the run whose interval begins at `start` does not rebuild; None when it does."""
    if stream_status(lake, stream).live_is_right:
        return f"the live state of {stream.name} is right: there is nothing to rebuild"
    if waiting := runs_behind(lake, stream, start, queued):
        return f"the backfill has {counted(waiting, 'more run')} queued: the last one rebuilds"
    return None


def runs_behind(
    lake: Lake, stream: Stream, start: datetime, queued: Callable[[Sequence[datetime]], int]
) -> int:
    """The number of a backfill's runs that wait for the one whose interval begins at `start`.

    `queued` counts the waiting runs of these logical dates, without those that run already: two of
    them would leave what the last one does to each other.
    """
    return queued(near_dates(stream.schedule, start, complete_until(lake, stream.name)))


def why_not_mend(lake: Lake, child: Stream) -> str | None:
    """The reason why a stream is not rebuilt behind its parent; None when its bronze makes other rows."""
    status = stream_status(lake, child)
    if status.opened.row is None:
        return f"{child.name} has not run yet"
    is_own = any(span.reason != "upstream" for span in status.table_status.wrong)
    if status.doubt or is_own or not status.live_is_right:
        return None
    return "its input comes to the same rows" if status.upstream is None else status.upstream.why


def near_dates(schedule: str, start: datetime, complete: datetime | None) -> list[datetime]:
    """The logical dates next to `start`, of intervals that end by `complete`."""
    back, ahead = croniter(schedule, start), croniter(schedule, start)
    before = [back.get_prev(datetime) for _ in range(NEAR)]
    ticks = [ahead.get_next(datetime) for _ in range(NEAR + 1)]
    after = [date for date, end in pairwise(ticks) if complete is not None and end <= complete]
    return before + after


log = logging.getLogger("job")
MOST = 100
SHARE = 0.25  # of the task's timeout: what a restatement of several intervals may take


def last_waiting_end(
    opened: OpenStream,
    start: datetime,
    until: datetime,
    waiting: Callable[[Sequence[datetime]], int],
) -> datetime:
    """The end of the intervals that are restated in one piece with `[start, until)`: those that follow by the
    schedule, are complete, and whose restatements wait, as many as are done in time."""
    stream, complete = opened.declared, complete_until(opened.lake, opened.name)
    ends = [until.astimezone(UTC)]
    while len(ends) < MOST and complete is not None and waiting([ends[-1]]):
        if (following := next_tick(stream.schedule, ends[-1])) > complete:
            break
        ends.append(following)
    most_seconds = SHARE * stream.timeout.total_seconds()
    while len(ends) > 1:
        seconds = plan_restate(opened, start, ends[-1]).estimated_seconds
        if seconds is None or seconds <= most_seconds:
            break
        ends = ends[: len(ends) // 2]
    return ends[-1]


def has_nothing_to_change(lake: Lake, stream: Stream, start: datetime, until: datetime) -> bool:
    """True if a restatement of `[start, until)` would change nothing: the table is right there, or
    shows the live state. False when the status cannot be read: the job then says why."""
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
