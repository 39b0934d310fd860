"""The rows of a source's bronze and quarantine, of outcomes that Spark has."""

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from include.landing.clock import Clock
from include.landing.group_clock import Newest, group_column
from include.landing.group_clock import newest_of_groups as groups_of_values
from include.landing.origin_columns import origin_columns, refused_columns
from include.landing.parse_files import ACCEPTED, REFUSED, value_column
from include.settings import FOLDER, RESCUED, Source


def bronze_rows(
    parsed: DataFrame, source: Source, before: Clock, after: Clock, with_rescued: bool
) -> DataFrame:
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
        *(F.col(column.name) for column in origin_columns(source)),
        *([F.col(RESCUED)] if with_rescued else []),
    )
    return rows.repartition("event_date")


def newest_of_groups(parsed: DataFrame, source: Source) -> Newest | None:
    """The newest event time of each group of the accepted rows; None of a source without groups."""
    if source.watermark_per is None:
        return None
    column = group_column(source, value_column)
    events = parsed.where(F.col("kind") == ACCEPTED)
    newest = events.groupBy(column).agg(F.max("event_time_us"))
    if source.watermark_per != FOLDER:  # more than may be are not all fetched
        newest = newest.limit(source.watermark_groups + 1)
    return groups_of_values(source, ((row[0], row[1]) for row in newest.collect()))


def quarantine_rows(parsed: DataFrame, source: Source, ingested_at_us: int) -> DataFrame:
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
        *(F.col(column.name) for column in refused_columns(source)),
    )
    return rows.coalesce(1)


def _instant(micros: int | None) -> SparkColumn:
    return F.timestamp_micros(F.lit(micros).cast("bigint"))
