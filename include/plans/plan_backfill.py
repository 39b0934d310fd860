"""The runs of a backfill, one by one, which of them share a JVM, and whether it promotes. Without a JVM."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from statistics import median

from croniter import croniter, croniter_range
from deltalake.exceptions import DeltaError

from include.coverage.findings import state_between
from include.fold.admission import micros_of
from include.lake.errors import wrong_argument
from include.lake.paths import Lake, LakeError
from include.lake.stream_result import complete_until
from include.landing.amendments import refuse_run
from include.plans.plan_recompute import (
    RecomputePlan,
    base_text,
    before_initial_state,
    check_settled,
    plan_intervals,
    recorded_recomputes,
    refuse_live_state,
)
from include.plans.stream_status import stream_status
from include.savepoints.manifest import StreamIdentity
from include.settings import SettingsError, Stream
from include.stream_definition import load_definition
from include.text_table import counted, text_table

COLUMNS = ("from (UTC)", "until", "now", "base", "rows to read", "rows replaced", "seconds")
WORDS = (0, 1, 2, 3)
SHOWN = 40
MOST_RUNS = 60_000  # a year of them, ten minutes each
RUN_BEFORE = "the run before"


@dataclass(frozen=True)
class PlannedRun:
    """The recompute of one interval, after those of the intervals before it."""

    start: datetime
    until: datetime
    base: str
    rows_to_read: int
    rows_replaced: int  # of the table
    estimated_seconds: float | None  # None: no recorded recompute of the stream to go by
    now: str  # whether the table is right there, or why not


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


def plan_backfill(
    lake: Lake, stream: Stream, identity: StreamIdentity, start: datetime, until: datetime
) -> BackfillPlan:
    """The Dag runs for the intervals of the stream's schedule that begin in `[start, until)`.

    Raises SettingsError when none begins there, NotSettledError when the stream has settled
    none of them yet, LakeError when there is nothing to compute from, or it must not be now.
    """
    if until <= start:
        raise wrong_argument(
            "FROM", f"FROM must be before UNTIL, and {start} is not before {until}"
        )
    intervals = schedule_intervals(stream.schedule, start, until)
    if not intervals:
        raise wrong_argument(
            "FROM",
            f"no interval of the schedule {stream.schedule!r} of {stream.name} begins from {start} "
            f"until {until}",
        )
    refuse_run(lake, stream)
    refuse_live_state(identity)
    check_settled(lake, stream, intervals[0][1])
    settled = complete_until(lake, stream.name)
    assert settled is not None  # or the check would have raised
    closed = [interval for interval in intervals if interval[1] <= settled]
    early = [why for _, end in closed if (why := before_initial_state(identity, end)) is not None]
    if len(early) == len(closed):
        raise early[0]
    plans = plan_intervals(lake, stream, identity, closed[len(early) :])
    runs = [_planned_run(number, plan) for number, plan in enumerate(plans)]
    return BackfillPlan(stream.name, runs, len(intervals) - len(closed), settled, early)


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


def _planned_run(number: int, plan: RecomputePlan) -> PlannedRun:
    return PlannedRun(
        plan.start,
        plan.until,
        RUN_BEFORE if number else base_text(plan.base),
        rows_to_read=plan.rows_to_read,
        rows_replaced=plan.rows_replaced,
        estimated_seconds=plan.estimated_seconds,
        now=state_between(plan.coverage, micros_of(plan.start), micros_of(plan.until)),
    )


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
