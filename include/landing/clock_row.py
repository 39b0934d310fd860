"""Clock rows: the one that an ingest run ends with (clock.py), one that stands still, one that goes back."""

import logging
from datetime import datetime

from include.fold.admission import EPOCH, MICROSECOND
from include.lake.commits import is_written
from include.lake.delta_log import delta_table
from include.lake.findings import Finding
from include.lake.ops import despite_others
from include.lake.paths import Lake, LakeError
from include.landing.bronze_commits import (
    append_next,
    clock_after_row,
    clock_row,
    clock_set_back,
    read_clock,
)
from include.landing.clock import (
    RESET_KEY,
    STILL_KEY,
    Clock,
    ClockPlan,
    as_text,
    has_initial_state,
    landing_lag,
    plan_clock_row,
)
from include.landing.clock_repair import app_id
from include.landing.ingest_seal import reseal_table
from include.settings import Source

# What such a commit says of itself.
CLOCK = {"clock": True}

log = logging.getLogger("job.clock")


def write_clock_row(
    lake: Lake, source: Source, interval_end: datetime | None, now: datetime
) -> list[Finding]:
    """Move the watermark of a silent source on, in one commit; not while landing is behind.

    To be called after the drain. `now` must be before the call: what has landed until then
    is seen here, and holds the row back. A repeated call finds the watermark where the first
    left it, and does nothing. A row that would go further than it may is a finding.
    """
    if source.clock_grace is None:
        return []
    has_seed, lag = has_initial_state(lake, source), landing_lag(lake, source)

    def write() -> ClockPlan:
        table = delta_table(lake.bronze(source.name))  # before its clock is read
        before = read_clock(lake, source)
        plan = plan_clock_row(
            source, before.watermark_us, has_seed, lag=lag, interval_end=interval_end, now=now
        )
        if plan.target_us is not None:
            now_us = (now - EPOCH) // MICROSECOND
            after = clock_after_row(before, plan.target_us, now_us)
            plan = _held_back(source, plan, before, after, now_us)
        if plan.target_us is not None:
            append_next(table, clock_row(source, before, after), after, CLOCK)
        return plan

    plan = despite_others(write)
    if plan.target_us is None:
        log.info("no clock row: %s", plan.why)
        return []
    log.info("clock row: bronze/%s is at %s now", source.name, as_text(plan.target_us))
    return [_bounded(source, plan)] if plan.is_bounded else []


def _held_back(
    source: Source, plan: ClockPlan, before: Clock, after: Clock, now_us: int
) -> ClockPlan:
    """The plan of a row that takes the clock to `after`, which groups may hold back.

    One that moves nothing is written, too: by it, time passes for who is silent. Not at one
    instant twice.
    """
    if before.groups is None or after.watermark_us == plan.target_us:
        return plan
    why = f"groups of {source.name} that are not idle have not come so far (ops/watermark_groups)"
    passes = before.ingested_at_us is None or now_us > before.ingested_at_us
    moves = passes or after.watermark_us != before.watermark_us
    return ClockPlan(after.watermark_us if moves else None, why)


def _bounded(source: Source, plan: ClockPlan) -> Finding:
    return Finding(
        finding="clock_row_bounded",
        severity="warning",
        detail=f"{plan.why}. The next run goes on from there",
        action="if the machine's clock is ahead, set it right at once; after a pause, nothing; if "
        f"runs of {source.name} are further apart than that, raise its max_clock_step",
    )


def write_still_row(lake: Lake, source: Source) -> None:
    """Append a clock row that moves no watermark: something to read, so that a batch runs.

    Its `ingested_at` is that of the newest commit, so it moves no stream in processing time,
    either. LakeError when bronze has no clock yet.
    """

    def write() -> None:
        table = delta_table(lake.bronze(source.name))  # before its clock is read
        clock = read_clock(lake, source)
        if clock.watermark_us is None:
            raise LakeError(
                f"{lake.bronze(source.name)} has no row yet: there is no state to compact",
                code="nothing_there",
                subject=source.name,
            )
        append_next(table, clock_row(source, clock, clock), clock, CLOCK | {STILL_KEY: True})

    despite_others(write)
    reseal_table(lake, source.name, f"bronze/{source.name}")


def write_reset_row(lake: Lake, source: Source, to_us: int, repair: int, now_us: int) -> None:
    """Append a clock row that sets M back to `to_us`, once for each number of a repair."""
    app = app_id(source.name)

    def write() -> None:
        table = delta_table(lake.bronze(source.name))  # before its clock is read
        if is_written(table, app, repair):
            return
        before = read_clock(lake, source)
        after = clock_set_back(before, to_us, now_us)
        row = clock_row(source, before, after)
        append_next(table, row, after, CLOCK | {RESET_KEY: repair}, (app, repair))

    despite_others(write)
    reseal_table(lake, source.name, f"bronze/{source.name}")
