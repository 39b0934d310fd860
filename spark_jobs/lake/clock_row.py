"""Clock rows: the one that an ingest run ends with (include/clock.py), and one that stands still."""

import json
import logging
from datetime import datetime

from pyspark.sql import SparkSession

from include.clock import (
    STILL_KEY,
    Clock,
    as_text,
    has_initial_state,
    landing_lag,
    plan_clock_row,
)
from include.lake import Lake, LakeError
from include.streams import Source
from spark_jobs.fold.admission import EPOCH, MICROSECOND
from spark_jobs.lake import bronze

log = logging.getLogger("job.clock")


def write_clock_row(
    spark: SparkSession, lake: Lake, source: Source, interval_end: datetime | None, now: datetime
) -> None:
    """Move the watermark of a silent source on, in one commit; not while landing is behind.

    To be called after the drain. `now` must be before the call: what has landed until then
    is seen here, and holds the row back. A repeated call finds the watermark where the first
    left it, and does nothing.
    """
    if source.clock_grace is None:
        return
    before = bronze.read_clock(spark, lake, source)
    has_seed, lag = has_initial_state(lake, source), landing_lag(lake, source)
    plan = plan_clock_row(source, before.watermark_us, has_seed, lag, interval_end, now)
    if plan.target_us is None:
        log.info("no clock row: %s", plan.why)
        return
    after = bronze.clock_after(before, plan.target_us, (now - EPOCH) // MICROSECOND)
    _append(spark, lake, source, before, after, {"clock": True})
    log.info("clock row: bronze/%s is at %s now", source.name, as_text(plan.target_us))


def write_still_row(spark: SparkSession, lake: Lake, source: Source) -> None:
    """Append a clock row that moves no watermark: something to read, so that a batch runs.

    Its `ingested_at` is that of the newest commit, so it moves no stream in processing time,
    either. To be called under the source's lease. LakeError when bronze has no clock yet.
    """
    clock = bronze.read_clock(spark, lake, source)
    if clock.watermark_us is None:
        raise LakeError(f"{lake.bronze(source.name)} has no row yet: there is no state to compact")
    _append(spark, lake, source, clock, clock, {"clock": True, STILL_KEY: True})


def _append(
    spark: SparkSession,
    lake: Lake,
    source: Source,
    before: Clock,
    after: Clock,
    marks: dict[str, bool],
) -> None:
    row = bronze.clock_row(spark, source, before, after)
    metadata = json.dumps(after.metadata() | marks)
    path = lake.bronze(source.name)
    row.write.format("delta").mode("append").option("userMetadata", metadata).save(path)
