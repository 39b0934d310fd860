"""The rows of a source's bronze and quarantine, and the clock of bronze.

M is the largest `least(event_time, ingested_at)` ever committed, floored to milliseconds; or,
since a repair has set it back (include/landing/clock_repair.py), of that and all that came after it.
Each commit to bronze stores it twice on its rows, before and after the commit; whether a
row is late follows from the former, and must not depend on anything read later.

`ingested_at` is one instant for each commit, later than in every earlier commit even when
the machine's clock goes back: streams in processing time fold by it.
"""

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.admission import US_PER_MS
from include.lake.paths import Lake
from include.landing.clock import Clock, read_logged_clock
from include.landing.landed_row import DAY_US
from include.settings import Source
from spark_jobs.tables.landing import ACCEPTED, REFUSED, value_column


def read_clock(spark: SparkSession, lake: Lake, source: Source) -> Clock:
    """The clock of bronze: from the table's log, or from its rows where the log is silent."""
    logged = read_logged_clock(lake, source)
    if logged is not None and (logged.watermark_us is None) == (logged.ingested_at_us is None):
        return logged
    # Of the newest commit: a repair sets M back, so an older one may have a larger.
    clock = F.struct(F.unix_micros("ingested_at"), F.unix_micros("commit_watermark"))
    rows = spark.read.format("delta").load(lake.bronze(source.name))
    newest = rows.agg(F.max(clock)).collect()[0][0]
    return Clock(None, None) if newest is None else Clock(newest[1], newest[0])


def clock_after(before: Clock, newest_event_us: int, now_us: int) -> Clock:
    """The clock after a commit, at `now_us`, of events up to `newest_event_us`."""
    ingested_at_us = _ingested_at_after(before, now_us)
    newest_us = _floor_to_ms(min(newest_event_us, ingested_at_us))
    if before.watermark_us is not None:
        newest_us = max(newest_us, before.watermark_us)
    return Clock(newest_us, ingested_at_us)


def clock_set_back(before: Clock, to_us: int, now_us: int) -> Clock:
    """The clock after the commit, at `now_us`, of a repair that sets M back to `to_us`.

    `ingested_at` goes on: it says which rows came after.
    """
    return Clock(_floor_to_ms(to_us), _ingested_at_after(before, now_us))


def _ingested_at_after(before: Clock, now_us: int) -> int:
    """In whole milliseconds, as watermarks are; tables of version 0.1 have finer ones."""
    if before.ingested_at_us is None:
        return _floor_to_ms(now_us)
    return max(_floor_to_ms(now_us), _floor_to_ms(before.ingested_at_us) + US_PER_MS)


def _floor_to_ms(micros: int) -> int:
    return micros // US_PER_MS * US_PER_MS


def bronze_rows(parsed: DataFrame, source: Source, before: Clock, after: Clock) -> DataFrame:
    """The accepted rows of a parsed batch as bronze stores them: one file for each date."""
    rows = parsed.where(F.col("kind") == ACCEPTED).select(
        *(F.col(value_column(field)).alias(field.name) for field in source.fields),
        F.timestamp_micros("event_time_us").alias("event_time"),
        F.date_from_unix_date("event_day").alias("event_date"),
        _instant(after.ingested_at_us).alias("ingested_at"),
        _instant(before.watermark_us).alias("arrival_watermark"),
        _instant(after.watermark_us).alias("commit_watermark"),
        F.col("source_file"),
        F.lit(False).alias("is_clock"),
    )
    return rows.repartition("event_date")


def clock_row(schema: pa.Schema, before: Clock, after: Clock) -> pa.Table:
    """The one row that moves the clock of bronze to `after`, as bronze, of `schema`, stores it."""
    at_us = after.watermark_us or 0
    values = {
        "event_time": at_us,
        "event_date": at_us // DAY_US,
        "ingested_at": after.ingested_at_us,
        "arrival_watermark": before.watermark_us,
        "commit_watermark": after.watermark_us,
        "is_clock": True,
    }
    # Without the comments: delta-rs refuses data whose comments are not those of the table.
    plain = pa.schema([field.remove_metadata() for field in schema])
    columns = [pa.array([values.get(field.name)], field.type) for field in plain]
    return pa.table(columns, schema=plain)


def quarantine_rows(parsed: DataFrame, ingested_at_us: int) -> DataFrame:
    """The refused rows of a parsed batch as quarantine stores them."""
    rows = parsed.where(F.col("kind") == REFUSED).select(
        "quarantine_id",
        "reason_code",
        "reason",
        "raw",
        "source_file",
        "row_number",
        _instant(ingested_at_us).alias("ingested_at"),
        _instant(None).alias("resolved_at"),
        F.lit(None).cast("string").alias("correction"),
    )
    return rows.coalesce(1)


def _instant(micros: int | None) -> SparkColumn:
    return F.timestamp_micros(F.lit(micros).cast("bigint"))
