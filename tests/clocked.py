"""Signals with a clock, for tests: how their bronze looks after each commit."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from include.lake.paths import Lake
from include.landing.clock import Clock
from include.registry import source_named
from spark_jobs.tables import bronze

GRACE = timedelta(minutes=1)
SIGNALS = replace(source_named("signals"), clock_grace=GRACE, max_clock_step=None)
WITHOUT_CLOCK = replace(SIGNALS, clock_grace=None)
HOUR = timedelta(hours=1)
MS = timedelta(milliseconds=1)


def in_order(spark: SparkSession, lake: Lake) -> list[Row]:
    """The rows of bronze by their ingestion, all instants in microseconds."""
    table = spark.read.format("delta").load(lake.bronze("signals"))
    instants = ("event_time", "ingested_at", "arrival_watermark", "commit_watermark")
    in_us = {name: F.unix_micros(name) for name in instants}
    return table.withColumns(in_us).orderBy("ingested_at", "event_time").collect()


def clock_of(spark: SparkSession, lake: Lake) -> Clock:
    return bronze.read_clock(spark, lake, SIGNALS)


def version(lake: Lake) -> int:
    return DeltaTable(lake.bronze("signals")).version()


def at(end: datetime) -> dict[str, Any]:
    """A call of `write_clock_row` by a Dag run that came just when its interval ended."""
    return {"interval_end": end, "now": end}
