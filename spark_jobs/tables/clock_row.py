"""Clock rows: the one that an ingest run ends with (include/landing/clock.py), and one that stands still.

Each is computed from the clock that it moves, so no commit may come between the two. A lease sees
to that on a local lake, and on no other; and Delta lets appends pass each other (a blind append
conflicts with nothing). So these rows are committed by delta-rs, as exactly the version after the
one that was open when the clock was read, or not at all: a log has each version once. When
somebody else was faster, the clock is read again. (Spark cannot do that: its writers begin with
whatever version is the newest, and go on to the next number when theirs is taken: see
ordered_append.py.)
"""

import json
import logging
from collections.abc import Mapping
from datetime import datetime

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from include.fold.admission import EPOCH, MICROSECOND
from include.lake.findings import Finding
from include.lake.ops import despite_others
from include.lake.paths import Lake, LakeError
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
from spark_jobs.tables import bronze
from spark_jobs.tables.arrow_transaction import transaction

log = logging.getLogger("job.clock")


def write_clock_row(
    spark: SparkSession, lake: Lake, source: Source, interval_end: datetime | None, now: datetime
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
        table = DeltaTable(lake.bronze(source.name))  # before its clock is read
        before = bronze.read_clock(spark, lake, source)
        plan = plan_clock_row(source, before.watermark_us, has_seed, lag, interval_end, now)
        if plan.target_us is not None:
            after = bronze.clock_after(before, plan.target_us, (now - EPOCH) // MICROSECOND)
            append_next(table, before, after, {"clock": True})
        return plan

    plan = despite_others(write)
    if plan.target_us is None:
        log.info("no clock row: %s", plan.why)
        return []
    log.info("clock row: bronze/%s is at %s now", source.name, as_text(plan.target_us))
    return [_bounded(source, plan)] if plan.is_bounded else []


def _bounded(source: Source, plan: ClockPlan) -> Finding:
    return Finding(
        finding="clock_row_bounded",
        severity="warning",
        detail=f"{plan.why}. The next run goes on from there",
        action="if the machine's clock is ahead, set it right at once; after a pause, nothing; if "
        f"runs of {source.name} are further apart than that, raise its max_clock_step",
    )


def write_still_row(spark: SparkSession, lake: Lake, source: Source) -> None:
    """Append a clock row that moves no watermark: something to read, so that a batch runs.

    Its `ingested_at` is that of the newest commit, so it moves no stream in processing time,
    either. LakeError when bronze has no clock yet.
    """

    def write() -> None:
        table = DeltaTable(lake.bronze(source.name))  # before its clock is read
        clock = bronze.read_clock(spark, lake, source)
        if clock.watermark_us is None:
            raise LakeError(
                f"{lake.bronze(source.name)} has no row yet: there is no state to compact"
            )
        append_next(table, clock, clock, {"clock": True, STILL_KEY: True})

    despite_others(write)
    reseal_table(lake, source.name, f"bronze/{source.name}")


def write_reset_row(
    spark: SparkSession, lake: Lake, source: Source, to_us: int, repair: int, now_us: int
) -> None:
    """Append a clock row that sets M back to `to_us`, once for each number of a repair."""
    app = app_id(source.name)

    def write() -> None:
        table = DeltaTable(lake.bronze(source.name))  # before its clock is read
        if (table.transaction_version(app) or 0) >= repair:
            return
        before = bronze.read_clock(spark, lake, source)
        after = bronze.clock_set_back(before, to_us, now_us)
        append_next(table, before, after, {"clock": True, RESET_KEY: repair}, (app, repair))

    despite_others(write)
    reseal_table(lake, source.name, f"bronze/{source.name}")


def append_next(
    table: DeltaTable,
    before: Clock,
    after: Clock,
    marks: Mapping[str, bool | int],
    once: tuple[str, int] | None = None,
) -> None:
    """Commit the row as the version after `table`'s; CommitFailedError when that is taken."""
    row = bronze.clock_row(pa.schema(table.schema().to_arrow()), before, after)
    properties = CommitProperties(
        custom_metadata={"userMetadata": json.dumps(after.metadata() | dict(marks))},
        max_commit_retries=0,
        app_transactions=None if once is None else [transaction(*once)],
    )
    write_deltalake(table, row, mode="append", commit_properties=properties)
