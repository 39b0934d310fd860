"""Clock rows: the one that an ingest run ends with (clock.py), one that stands still, one that goes back."""

import logging
from datetime import datetime

from include.fold.admission import EPOCH, MICROSECOND
from include.lake.findings import Finding
from include.lake.paths import Lake, LakeError
from include.landing.bronze_commits import (
    clock_after_row,
    clock_row,
    clock_set_back,
    read_clock,
)
from include.landing.clock import (
    ClockPlan,
    as_text,
    has_initial_state,
    landing_lag,
    plan_clock_row,
)
from include.landing.ingest_log import REPAIR, STILL, Clock, Ingestion
from include.settings import Source

log = logging.getLogger("job.clock")


def write_clock_row(
    ingestion: Ingestion, interval_end: datetime | None, now: datetime
) -> list[Finding]:
    """Move the watermark of a silent source on, in one commit; not while landing is behind.

    To be called after the drain. `now` must be before the call: what has landed until then
    is seen here, and holds the row back. A repeated call finds the watermark where the first
    left it, and does nothing. A row that would go further than it may is a finding.
    """
    lake, source = ingestion.lake, ingestion.source
    if source.clock_grace is None:
        return []
    has_seed, lag = has_initial_state(lake, source), landing_lag(lake, source)

    def write() -> ClockPlan:
        before = read_clock(ingestion)
        plan = plan_clock_row(
            source, before.watermark_us, has_seed, lag=lag, interval_end=interval_end, now=now
        )
        if plan.target_us is not None:
            now_us = (now - EPOCH) // MICROSECOND
            after = clock_after_row(before, plan.target_us, now_us)
            plan = _held_back(source, plan, before, after, now_us)
        if plan.target_us is not None:
            ingestion.take_rows(before, after, clock_row(source, before, after))
        return plan

    plan = ingestion.again(write)
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
    ingestion = Ingestion.open(lake, source)
    ingestion.finish()

    def write() -> None:
        clock = read_clock(ingestion)
        if clock.watermark_us is None:
            raise LakeError(
                f"{lake.bronze(source.name)} has no row yet: there is no state to compact",
                code="nothing_there",
                subject=source.name,
            )
        ingestion.take_rows(clock, clock, clock_row(source, clock, clock), {STILL: True})

    ingestion.again(write)


def write_reset_row(lake: Lake, source: Source, to_us: int, repair: int, now_us: int) -> None:
    """Append a clock row that sets M back to `to_us`, once for each number of a repair."""
    ingestion = Ingestion.open(lake, source)
    ingestion.finish()

    def write() -> None:
        if all(reset.repair < repair for reset in ingestion.logged.resets()):
            before = read_clock(ingestion)
            after = clock_set_back(before, to_us, now_us)
            ingestion.take_rows(before, after, clock_row(source, before, after), {REPAIR: repair})

    ingestion.again(write)
