"""The bronze and quarantine tables of a source, and the watermarks in bronze.

M is the largest `least(event_time, ingested_at)` ever committed, floored to milliseconds.
Each commit to bronze stores it twice on its rows, before and after the commit; whether a
row is late follows from the former, and must not depend on anything read later.
"""

import json
from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable as DeltaLog
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.lake import Lake
from include.streams import SettingsError, Source
from spark_jobs.fold.admission import US_PER_MS
from spark_jobs.lake.delta_table import Column, create_if_absent
from spark_jobs.lake.landing import ACCEPTED, REFUSED, value_column

# The table's own log names M, so that the next commit need not look for it in the rows.
WATERMARK_KEY = "commit_watermark_us"
COMMITS_LOOKED_AT = 20
COMMITS_WITHOUT_ROWS = frozenset(
    {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "CHANGE COLUMN"}
)

FEATURES = {"delta.enableDeletionVectors": "false"}

QUARANTINE_COLUMNS = (
    Column("quarantine_id", "string", "Key: of the file's name and the row's number in it"),
    Column("reason_code", "string", "Why it was refused: a stable word, such as wrong_type"),
    Column("reason", "string", "Why it was refused, for people"),
    Column(
        "raw",
        "string",
        "The row as landed (CSV: after its header; Parquet: as JSON); null for a whole file",
    ),
    Column("source_file", "string", "The file it landed in, below landing/<source>"),
    Column("row_number", "bigint", "Its number in the file, from 1; 0 for a whole file"),
    Column("ingested_at", "timestamp", "When ingestion refused it"),
    Column("resolved_at", "timestamp", "When it was taken in after all; null while open"),
    Column("correction", "string", "The last corrected text given to re-ingestion; null if none"),
)


def bronze_columns(source: Source) -> tuple[Column, ...]:
    """The columns of bronze: the source's fields, then what ingestion adds.

    Raises SettingsError when a field has the name of a column that ingestion adds.
    """
    added = _added_columns(source)
    taken = {column.name for column in added} & {field.name for field in source.fields}
    if taken:
        raise SettingsError(f"source {source.name}: bronze itself has a column {min(taken)}")
    fields = (Column(field.name, field.type, field.comment) for field in source.fields)
    return (*fields, *added)


def _added_columns(source: Source) -> tuple[Column, ...]:
    return (
        Column("event_time", "timestamp", f"When it happened: the landed {source.time_field}"),
        Column("event_date", "date", "The UTC date of event_time"),
        Column("ingested_at", "timestamp", "When ingestion took it in"),
        Column(
            "arrival_watermark",
            "timestamp",
            "The newest least(event_time, ingested_at) of all earlier commits; null in the first",
        ),
        Column(
            "commit_watermark", "timestamp", "arrival_watermark with this commit's rows as well"
        ),
        Column(
            "source_file",
            "string",
            "The file it landed in, below landing/<source>; #<quarantine_id> if re-ingested",
        ),
        Column("is_clock", "boolean", "No event: only moves the watermark", nullable=False),
    )


def create_tables(spark: SparkSession, lake: Lake, source: Source) -> None:
    """Make bronze and quarantine of the source, where they are not there yet."""
    if not lake.is_delta_table(lake.bronze(source.name)):
        create_if_absent(
            spark,
            lake.bronze(source.name),
            bronze_columns(source),
            f"{source.comment}: the events as they were ingested, append-only",
            FEATURES | {"delta.appendOnly": "true"},
            partition_by=["event_date"],
        )
    if not lake.is_delta_table(lake.quarantine(source.name)):
        create_if_absent(
            spark,
            lake.quarantine(source.name),
            QUARANTINE_COLUMNS,
            f"{source.comment}: the landed rows and files that are no events",
            FEATURES,
        )


def read_watermark_us(spark: SparkSession, lake: Lake, source: Source) -> int | None:
    """M of bronze in microseconds; None before its first rows."""
    path = lake.bronze(source.name)
    for commit in DeltaLog(path).history(limit=COMMITS_LOOKED_AT):
        metadata = _user_metadata(commit)
        if WATERMARK_KEY in metadata:
            return int(metadata[WATERMARK_KEY])
        if commit.get("operation") == "CREATE TABLE":
            return None
        if commit.get("operation") not in COMMITS_WITHOUT_ROWS:
            break
    newest = F.max(F.unix_micros("commit_watermark"))
    value = spark.read.format("delta").load(path).agg(newest).collect()[0][0]
    return None if value is None else int(value)


def _user_metadata(commit: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        metadata = json.loads(commit.get("userMetadata") or "{}")
    except ValueError:
        return {}  # someone else's commit, with a text of their own
    return metadata if isinstance(metadata, dict) else {}


def watermark_after(before_us: int | None, newest_event_us: int, ingested_at_us: int) -> int:
    """M after a commit of events up to `newest_event_us`; it never falls."""
    newest_us = min(newest_event_us, ingested_at_us)
    floored_us = newest_us // US_PER_MS * US_PER_MS
    return floored_us if before_us is None else max(before_us, floored_us)


def bronze_rows(
    parsed: DataFrame,
    source: Source,
    ingested_at_us: int,
    before_us: int | None,
    after_us: int,
) -> DataFrame:
    """The accepted rows of a parsed batch as bronze stores them: one file for each date."""
    rows = parsed.where(F.col("kind") == ACCEPTED).select(
        *(F.col(value_column(field)).alias(field.name) for field in source.fields),
        F.timestamp_micros("event_time_us").alias("event_time"),
        F.date_from_unix_date("event_day").alias("event_date"),
        _instant(ingested_at_us).alias("ingested_at"),
        _instant(before_us).alias("arrival_watermark"),
        _instant(after_us).alias("commit_watermark"),
        F.col("source_file"),
        F.lit(False).alias("is_clock"),
    )
    return rows.repartition("event_date")


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
