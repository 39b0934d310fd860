"""What recomputes would do: of one interval, or of each interval of a backfill; what shares a JVM, what promotes.

From the lake alone, without a JVM; the job does what its own plan says, made under the lease.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from operator import truediv
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from croniter import croniter, croniter_range
from deltalake.exceptions import DeltaError

from include.fold.admission import US_PER_MS, instant_of, micros_of
from include.lake.delta_log import dataset_of, unbroken
from include.lake.errors import LakeError, SettingsError, wrong_argument
from include.lake.paths import Lake
from include.lake.stream_result import complete_until, replaced_by
from include.settings import Stream
from include.stream.bronze_pin import BronzePin, count_before, pin_bronze
from include.stream.judge import Coverage, effect_text, state_between
from include.stream.manifest import (
    Base,
    StreamIdentity,
    choose_base,
    mapped_savepoint,
    savepoints_of,
)
from include.stream.open_stream import OpenStream
from include.stream.stream_status import judged, stream_status
from include.stream_definition import load_definition
from include.text_table import counted, text_table

COLUMNS = ("from (UTC)", "until", "now", "base", "rows to read", "rows replaced", "seconds")
WORDS = (0, 1, 2, 3)
SHOWN = 40
MOST_RUNS = 60_000  # a year of them, ten minutes each
RUN_BEFORE = "the run before"


class NotSettledError(SettingsError):
    """The live stream has not come to the interval's end: the message says when it will."""

    code = "not_settled"


@dataclass(frozen=True)
class PlannedRun:
    """The recompute of one interval, after those of the intervals before it; its fields are told as JSON."""

    start: datetime
    until: datetime
    base: str
    rows_to_read: int
    rows_replaced: int  # of the table
    estimated_seconds: float | None  # None: no recorded recompute of the stream to go by
    now: str  # whether the table is right there, or why not


@dataclass(frozen=True)
class RecomputePlan:
    """Recomputes, decided: of intervals, each from the end of the one before."""

    opened: OpenStream
    pin: BronzePin
    base: Base
    coverage: Coverage  # of the table as it is now
    runs: Sequence[PlannedRun]

    def text(self) -> str:
        """The plan of the first for people."""
        run = self.runs[0]
        took = "no recompute of it is recorded to estimate the time by"
        if run.estimated_seconds is not None:
            took = f"about {run.estimated_seconds:.0f} s"
        return (
            f"recompute {self.opened.name} from {run.start:%Y-%m-%d %H:%M:%S} until "
            f"{run.until:%Y-%m-%d %H:%M:%S} UTC: replays {counted(run.rows_to_read, 'row')} of bronze "
            f"(version {self.pin.version}) from {run.base}, replaces "
            f"{counted(run.rows_replaced, 'row')} of its table; {took}. "
            f"{effect_text(self.coverage, micros_of(run.start), micros_of(run.until))}"
        )


@dataclass(frozen=True)
class BackfillPlan:
    """The runs of a backfill, in order, and how many more would be refused, and why."""

    stream: str
    runs: Sequence[PlannedRun]
    unsettled: int
    settled: datetime
    early: Sequence[SettingsError] = ()  # of each before an initial state

    def text(self) -> str:
        """The plan for people."""
        runs = self.runs
        lines = [
            f"a backfill of stream_{self.stream} would make {counted(len(runs), 'run')} and "
            f"replay {counted(sum(run.rows_to_read for run in runs), 'row')}{self._took()}",
            *text_table(COLUMNS, [_cells(run) for run in runs[:SHOWN]], WORDS),
        ]
        if len(runs) > SHOWN:
            lines.append(f"  ... and {len(runs) - SHOWN:,} more")
        if self.early:
            lines.append(f"and {len(self.early):,} that would be refused: {self.early[0]}")
        if self.unsettled:
            lines.append(
                f"and {self.unsettled:,} that would be refused: the stream is complete until "
                f"{self.settled:%Y-%m-%d %H:%M:%S} UTC"
            )
        return "\n".join(lines)

    def _took(self) -> str:
        estimates = [run.estimated_seconds for run in self.runs]
        known = [seconds for seconds in estimates if seconds is not None]
        if not known:
            return "; none is recorded yet to estimate the time by"
        return f", in about {timedelta(seconds=round(sum(known)))}"


def plan_recompute(opened: OpenStream, start: datetime, until: datetime) -> RecomputePlan:
    """The plan for `[start, until)`, on the stream's clock.

    Raises SettingsError for an empty interval, NotSettledError for one that live has not
    settled, LakeError when there is nothing to compute from, or it must not be now.
    """
    if start >= until:
        raise wrong_argument(
            "UNTIL", f"the interval from {start} until {until} is empty: give a later end"
        )
    _refuse(opened, until)
    if (initial := before_initial_state(opened.identity, until)) is not None:
        raise initial
    return _plan(opened, [(start, until)])


def plan_backfill(opened: OpenStream, start: datetime, until: datetime) -> BackfillPlan:
    """The Dag runs for the intervals of the stream's schedule that begin in `[start, until)`.

    Raises SettingsError when none begins there, NotSettledError when the stream has settled
    none of them yet, LakeError when there is nothing to compute from, or it must not be now.
    """
    if until <= start:
        raise wrong_argument(
            "FROM", f"FROM must be before UNTIL, and {start} is not before {until}"
        )
    schedule = opened.declared.schedule
    intervals = schedule_intervals(schedule, start, until)
    if not intervals:
        raise wrong_argument(
            "FROM",
            f"no interval of the schedule {schedule!r} of {opened.name} begins from {start} "
            f"until {until}",
        )
    settled = _refuse(opened, intervals[0][1])
    closed = [interval for interval in intervals if interval[1] <= settled]
    ends = (end for _, end in closed)
    early = [why for end in ends if (why := before_initial_state(opened.identity, end)) is not None]
    if len(early) == len(closed):
        raise early[0]
    plan = _plan(opened, closed[len(early) :])
    return BackfillPlan(opened.name, plan.runs, len(intervals) - len(closed), settled, early)


def _refuse(opened: OpenStream, until: datetime) -> datetime:
    """Before which instant all is settled, `until` at least; the error when nothing may be recomputed."""
    opened.refuse_run()
    if opened.identity.output_mode == "update":
        raise SettingsError(
            f"the table of {opened.name} shows the live state, and no row of it is an interval's: "
            "a reseed takes late rows into both",
            code="no_interval",
            subject=opened.name,
            command=f"./stateful reseed {opened.name} --apply",
        )
    return check_settled(opened.lake, opened.declared, until)


def _plan(opened: OpenStream, intervals: Sequence[tuple[datetime, datetime]]) -> RecomputePlan:
    lake, identity = opened.lake, opened.identity
    edges = [intervals[0][0], *(until for _, until in intervals)]
    edges_us = [micros_of(edge) for edge in edges]
    pin = pin_bronze(lake, opened.source)
    _refuse_beyond_bronze(opened, pin, until_us=edges_us[-1])
    base = choose_base(savepoints_of(lake, opened.name), identity, pin, at_most_us=edges_us[0])
    refuse_before_mapping(identity, base, f"from before {edges[0]:%F %T} UTC")
    events = count_before(pin, identity.time_column, identity.since_us, cutoffs_us=edges_us)
    events[0] = base.events
    replaced = rows_emitted(lake, opened.declared, edges)
    recorded = recorded_recomputes(lake, opened.name)
    opened.trusted()
    coverage = judged(opened, identity)
    runs = [
        PlannedRun(
            start,
            until,
            RUN_BEFORE if number else base_text(base),
            rows_to_read=events[number + 1] - events[number],
            rows_replaced=replaced[number],
            estimated_seconds=seconds_for(events[number + 1] - events[number], recorded),
            now=state_between(coverage, micros_of(start), micros_of(until)),
        )
        for number, (start, until) in enumerate(intervals)
    ]
    return RecomputePlan(opened, pin, base, coverage, runs)


def _cells(run: PlannedRun) -> list[str]:
    return [
        f"{run.start:%Y-%m-%d %H:%M}",
        f"{run.until:%Y-%m-%d %H:%M}",
        run.now,
        run.base,
        f"{run.rows_to_read:,}",
        f"{run.rows_replaced:,}",
        "?" if run.estimated_seconds is None else f"{run.estimated_seconds:.0f}",
    ]


def base_text(base: Base) -> str:
    """Where a replay begins, for people."""
    if base.savepoint is not None:
        return f"savepoint {base.savepoint.savepoint_id}"
    return "the beginning" if base.until_us is None else "the initial state"


def before_initial_state(identity: StreamIdentity, until: datetime) -> SettingsError | None:
    """The error of who would recompute what is before that instant, for a stream whose initial state
    stands for all of it; None where something is to be recomputed."""
    if identity.since_us is None or micros_of(until) > identity.since_us:
        return None
    as_of = instant_of(identity.since_us)
    return SettingsError(
        f"{identity.stream} begins with an initial state as of {as_of}: there is nothing to recompute "
        "before that",
        code="before_initial_state",
        subject=identity.stream,
    )


def refuse_before_mapping(identity: StreamIdentity, base: Base, where: str) -> None:
    """SettingsError when only the beginning is left, and the stream's states do not come of it."""
    if base.savepoint is None and mapped_savepoint(identity.code):
        raise SettingsError(
            f"the state of {identity.stream} goes back to one that migrate_state has mapped, and no "
            f"clean savepoint of it is {where}: what is earlier is as the former code made it. Make all of "
            "it anew by the code of now, which gives that up",
            code="mapped_state",
            subject=identity.stream,
            command=f"./stateful reseed {identity.stream} --recompute --apply",
        )


def check_settled(lake: Lake, stream: Stream, until: datetime) -> datetime:
    """Before which instant live has settled everything; NotSettledError unless that is `until` or later."""
    settled = complete_until(lake, stream.name)
    if settled is not None and until <= settled:
        return settled
    delay = stream.watermark_delay
    known = "has settled nothing yet"
    if settled is not None:
        known = f"is complete until {settled:%Y-%m-%d %H:%M:%S} UTC"
    raise NotSettledError(
        f"{stream.name} {known}: what is before {until:%Y-%m-%d %H:%M:%S} UTC can be recomputed "
        f"once an event after {until + delay:%Y-%m-%d %H:%M:%S} UTC is in bronze. "
        "Nothing was changed; then run the stream",
        subject=stream.name,
        command=f"./stateful stream {stream.name}",
    )


def _refuse_beyond_bronze(opened: OpenStream, pin: BronzePin, until_us: int) -> None:
    """NotSettledError when the pinned rows do not settle all before `until_us`, as live has.

    Such as an older copy of bronze, or one that is ingested anew: rows that come again later would be
    in time there, and nothing would call what lacks them wrong.
    """
    identity, row = opened.identity, opened.row
    delay_us = identity.delay_us if row is None else row["watermark_delay_ms"] * US_PER_MS
    there_us = pin.settled_until_us(identity.time_column, delay_us)
    if until_us > there_us:
        raise NotSettledError(
            f"{pin.path} settles what is before {instant_of(there_us):%Y-%m-%d %H:%M:%S} UTC only, and "
            f"live has come further: ingest what is missing of it, and then make the table anew. "
            "Nothing was changed",
            code="of_other_times",
            subject=f"bronze/{identity.source}",
            command=f"./stateful reseed {identity.stream} --recompute --apply",
        )


def recorded_recomputes(lake: Lake, stream: str) -> list[tuple[int, float]]:
    """Rows read and seconds of each recompute and reseed of the stream."""
    return [
        (row["rows_in"], (row["ended_at"] - row["started_at"]).total_seconds())
        for row in replaced_by(lake, stream)
        if row["ended_at"] > row["started_at"]
    ]


def seconds_for(rows: int, recorded: Sequence[tuple[int, float]]) -> float | None:
    """What replaying so many rows would take: the recorded median, and what more rows cost; None without any."""
    if not recorded:
        return None
    read, seconds = zip(*recorded, strict=True)
    typical, rows_per_second = float(median(seconds)), float(max(map(truediv, read, seconds)))
    return max(typical, rows / rows_per_second) if rows_per_second else typical


def rows_emitted(lake: Lake, stream: Stream, edges: Sequence[datetime]) -> list[int]:
    """How many rows of the table were emitted between each edge and the next, rising.

    Raises LakeError when there is no table, or it cannot be read.
    """
    path = lake.table(stream.name)
    if not lake.is_delta_table(path):
        raise LakeError(
            f"there is no {path} yet: run the stream first",
            code="nothing_there",
            subject=f"tables/{stream.name}",
            command=f"./stateful stream {stream.name}",
        )
    first, last = (edge.astimezone(UTC).date() for edge in (edges[0], edges[-1]))
    dates = (pc.field("emitted_date") >= first) & (pc.field("emitted_date") <= last)
    below = np.zeros(len(edges), np.int64)
    edges_us = np.array([micros_of(edge) for edge in edges])
    with unbroken(path):
        for batch in dataset_of(path).scanner(["emitted_at"], filter=dates).to_batches():
            emitted_us = np.sort(
                pc.cast(batch["emitted_at"], pa.int64()).to_numpy(zero_copy_only=False)
            )
            below += np.searchsorted(emitted_us, edges_us)
    return [int(count) for count in np.diff(below)]


def schedule_intervals(
    schedule: str, start: datetime, until: datetime
) -> list[tuple[datetime, datetime]]:
    """The data intervals, between two ticks of the cron expression, that begin in `[start, until)`.

    SettingsError for more than MOST_RUNS: a year that was mistyped would be counted for hours.
    """
    try:
        ticks = _ticks(schedule, start, until)
    except (OverflowError, ValueError) as error:
        raise wrong_argument(
            "FROM",
            f"what begins from {start} until {until} cannot be counted, as the schedule {schedule!r} "
            "is also looked at before and after: give years further from 1 and 9999",
        ) from error
    if len(ticks) > MOST_RUNS + 1:
        raise SettingsError(
            f"more than {MOST_RUNS:,} intervals of the schedule {schedule!r} begin from {start} until "
            f"{until}: give a shorter time",
            code="too_much",
            subject="UNTIL",
        )
    return list(pairwise(ticks))


def _ticks(schedule: str, start: datetime, until: datetime) -> list[datetime]:
    """Those in `[start, until)` and the next; two more than MOST_RUNS at most."""
    found = (tick for tick in croniter_range(start, until, schedule) if tick < until)
    ticks = list(islice(found, MOST_RUNS + 1))
    return [*ticks, next_tick(schedule, ticks[-1])] if ticks else []


def next_tick(schedule: str, start: datetime) -> datetime:
    """Where the interval that begins at `start` ends."""
    tick: datetime = croniter(schedule, start).get_next(datetime)
    return tick


# To either side. Airflow takes the dates in a URL, and a backfill starts its runs in order, so
# those of it that wait are next to the one that runs.
NEAR = 100


def why_not_promote(
    lake: Lake, stream: Stream, start: datetime, queued: Callable[[Sequence[datetime]], int]
) -> str | None:
    """Why the run whose interval begins at `start` leaves it; None when it is to promote.

    `queued` tells how many runs of these logical dates wait to start. Those that run already do
    not count: two at the end would leave it to each other, and who comes too late finds nothing
    to promote. Raises LakeError when there is no bronze.
    """
    if stream_status(lake, stream).live_is_right:
        return f"the live state of {stream.name} is right: there is nothing to promote"
    dates = near_dates(stream.schedule, start, complete_until(lake, stream.name))
    # Not asked about no dates: Airflow would count the runs of all.
    waiting = sum(queued(side) for side in dates if side)
    if waiting:
        return f"the backfill has {counted(waiting, 'more run')} queued: the last one promotes"
    return None


def near_dates(
    schedule: str, start: datetime, settled: datetime | None
) -> tuple[list[datetime], list[datetime]]:
    """The logical dates next to `start`, before and after it, of intervals that end by `settled`.

    Later runs are not a backfill's: it would be refused, and live's own scheduled runs lie there.
    """
    back, ahead = croniter(schedule, start), croniter(schedule, start)
    before = [back.get_prev(datetime) for _ in range(NEAR)]
    ticks = [ahead.get_next(datetime) for _ in range(NEAR + 1)]
    after = [date for date, end in pairwise(ticks) if settled is not None and end <= settled]
    return before, after


log = logging.getLogger("job")
MOST = 100
# Of the task's timeout that all of them may take, by what was recorded.
SHARE = 0.25
UNKNOWN = timedelta(seconds=60)  # of one, before any is recorded


def last_waiting_end(
    lake: Lake, stream: Stream, until: datetime, queued: Callable[[Sequence[datetime]], int]
) -> datetime:
    """Where the last of the intervals ends that are recomputed in one piece with the one before `until`.

    By the schedule, as long as a Dag run of each waits (`queued` tells how many of these logical dates do)
    and live has settled it.
    """
    settled = complete_until(lake, stream.name)
    end = until.astimezone(UTC)
    for _ in range(_most(lake, stream) - 1):
        following = next_tick(stream.schedule, end)
        if settled is None or following > settled or not queued([end]):
            break
        end = following
    return end


def _most(lake: Lake, stream: Stream) -> int:
    """How many intervals one job may recompute."""
    recorded = recorded_recomputes(lake, stream.name)
    seconds = median(took for _, took in recorded) if recorded else UNKNOWN.total_seconds()
    return min(MOST, max(1, int(stream.timeout.total_seconds() * SHARE / seconds)))


def has_nothing_to_change(lake: Lake, stream: Stream, start: datetime, until: datetime) -> bool:
    """Whether a recompute of `[start, until)` would leave the table as it is: it is right there, or shows
    the live state, which no recompute touches.

    By the record and bronze as they are now. What cannot be told, the job is to say.
    """
    if load_definition(stream).fold.output_mode == "update":
        return True
    try:
        judged = stream_status(lake, stream)
    except (DeltaError, LakeError, OSError, SettingsError) as error:
        log.warning("%s: recomputed, whatever was before: %s", stream.name, error)
        return False
    known_until_us = judged.coverage.until_us
    if known_until_us is None or known_until_us < micros_of(until):
        return False  # a rewind has taken it back: nothing is wrong there, as nothing is there
    between = state_between(judged.coverage, micros_of(start), micros_of(until))
    return judged.doubt is None and between == "right"
