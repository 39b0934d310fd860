"""Landed files parsed on Spark's workers, which also write their rows as files of bronze and quarantine.

The workers open the landed files themselves. Spark's own reading would pass over files of zero bytes, and take a
large file through the JVM in one piece.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from include.lake.paths import Lake
from include.lake.table import Staged, Stager
from include.landing.connector import Batch, Outcome, ReadSplit, origin_columns, refused_columns
from include.landing.ingest_log import Clock
from include.landing.parse_files import (
    ACCEPTED,
    FILE,
    REFUSED,
    Parse,
    Summary,
    arrow_schema,
    bronze_schema,
    in_batches,
    outcome_schema,
    quarantine_schema,
    value_column,
)
from include.settings import RESCUED, Source


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
        *(F.col(column.name) for column in origin_columns(source)),
        F.col(RESCUED),
    )
    return rows.repartition("event_date").sortWithinPartitions("event_date")


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


# A file that is staged, as Spark's workers tell of it.
STAGED = pa.schema(
    [("path", pa.string()), ("size", pa.int64()), ("rows", pa.int64()), ("stats", pa.string())]
)


def staged(rows: DataFrame, table: str, schema: pa.Schema, by: str | None) -> list[Staged]:
    """The rows as files in the table's folder, which Spark's workers write."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stager = Stager(table, schema, by)
        for batch in batches:
            stager.write(pa.Table.from_batches([batch]))
        yield pa.RecordBatch.from_pylist([f._asdict() for f in stager.staged()], STAGED)

    told = rows.mapInArrow(write, "path string, size bigint, rows bigint, stats string")
    return [Staged(*row) for row in told.collect()]


class ParsedOnSpark:
    """`Parsed` of include.landing.parse_files, over the rows of a DataFrame."""

    def __init__(self, lake: Lake, source: Source, batch: Batch, outcomes: DataFrame) -> None:
        self._lake = lake
        self._source = source
        self._batch = batch
        self._outcomes = outcomes

    def summary(self) -> Summary:
        summary = Summary()
        files = self._outcomes.where(F.col("kind") == FILE).select("source_file", "tally")
        for row in files.collect():
            summary.add(row.source_file, row.tally)
        return summary

    def stage_accepted(self, before: Clock, after: Clock) -> list[Staged]:
        rows = bronze_rows(self._outcomes, self._source, before, after)
        table, schema = self._lake.bronze(self._source.name), bronze_schema(self._source)
        return staged(rows, table, schema, "event_date")

    def stage_refused(self) -> list[Staged]:
        rows = quarantine_rows(self._outcomes, self._source, self._batch.ingested_at_us)
        table = self._lake.quarantine(self._source.name)
        return staged(rows, table, quarantine_schema(self._source), None)


def parsed_on(spark: SparkSession) -> Parse:
    """Batches parsed by the workers of `spark`."""

    @contextmanager
    def parse(lake: Lake, source: Source, batch: Batch, read: ReadSplit) -> Iterator[ParsedOnSpark]:
        outcomes = parse_batch(spark, source, batch, read)
        # Two writes and a count: without it, files would be opened and judged three times.
        outcomes.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield ParsedOnSpark(lake, source, batch, outcomes)
        finally:
            outcomes.unpersist()

    return parse


def parse_batch(spark: SparkSession, source: Source, batch: Batch, read: ReadSplit) -> DataFrame:
    """All rows of the batch's splits, and the splits, as `outcome_schema` has them."""
    numbers = spark.createDataFrame([(n,) for n in range(len(batch.splits))], "number INT")
    schema = outcome_schema(source)

    def parse(row: Outcome) -> Iterator[Outcome]:
        return read(batch.splits[row["number"]])

    return numbers.mapInArrow(in_arrow(parse, schema), ddl(schema))


def ddl(schema: dict[str, str]) -> str:
    """The schema as Spark spells it."""
    return ", ".join(f"`{name}` {kind}" for name, kind in schema.items())


def in_arrow(
    parse: Callable[[Outcome], Iterator[Outcome]], schema: dict[str, str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """`parse` for `mapInArrow`: any number of rows of `schema` for each row given."""
    columns = arrow_schema(schema)

    def parse_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = chain.from_iterable(batch.to_pylist() for batch in batches)
        yield from in_batches(chain.from_iterable(map(parse, given)), columns)

    return parse_batches
