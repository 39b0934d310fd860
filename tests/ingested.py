"""What an ingestion of signals came to, for tests."""

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.lake.paths import Lake
from include.registry import source_named
from include.settings import Source

SIGNALS = source_named("signals")
SPLIT_ALWAYS = 1  # commit_bytes: every file is a commit of its own


def one_file_a_commit() -> Source:
    return replace(SIGNALS, commit_bytes=SPLIT_ALWAYS)


def bronze_of(spark: SparkSession, lake: Lake) -> DataFrame:
    return spark.read.format("delta").load(lake.bronze("signals"))


def quarantine_of(spark: SparkSession, lake: Lake) -> DataFrame:
    return spark.read.format("delta").load(lake.quarantine("signals"))


def events_of(spark: SparkSession, lake: Lake) -> list[tuple[Any, ...]]:
    columns = ["device_id", "value", F.unix_micros("event_time"), "event_date", "source_file"]
    return sorted(tuple(row) for row in bronze_of(spark, lake).select(*columns).collect())


def values_of(spark: SparkSession, lake: Lake) -> list[tuple[str, int]]:
    rows = bronze_of(spark, lake).where("NOT is_clock").collect()
    return sorted((row.source_file, row.value) for row in rows)
