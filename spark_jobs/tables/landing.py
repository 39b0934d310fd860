"""Landed files parsed by Spark's workers, which also write the files of bronze and quarantine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from include.fold.admission import DAY_US
from include.ingest.parse_files import (
    ACCEPTED,
    FILE,
    REFUSED,
    Counts,
    Parse,
    bronze_rows_of,
    bronze_schema,
    counts_in,
    in_batches,
    outcome_schema,
    quarantine_rows_of,
    quarantine_schema,
)
from include.ingest.splits import Batch, ReadSplit
from include.ingest.watermark import SourceWatermark
from include.lake.columns import sql_name
from include.lake.paths import Lake
from include.lake.table import Staged, stage
from include.settings import Source

Made = Callable[[pa.Table], pa.Table]


def staged(
    rows: DataFrame, table: str, schema: pa.Schema, by: str | None, made: Made | None = None
) -> list[Staged]:
    """Write the rows, or what is `made` of some at a time, as files in the table's folder, by workers."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if made is not None:
            tables = (made(pa.Table.from_batches([batch])) for batch in batches)
            batches = chain.from_iterable(part.to_batches() for part in tables)
        files = stage(table, batches, schema, by)
        if files:
            yield pa.RecordBatch.from_pylist([file._asdict() for file in files])

    written = rows.mapInArrow(write, "path string, size bigint, rows bigint, stats string")
    return [Staged(*row) for row in written.collect()]


class ParsedOnSpark:
    """`Parsed` of include.ingest.parse_files, over the rows of a DataFrame."""

    def __init__(self, lake: Lake, source: Source, batch: Batch, outcomes: DataFrame) -> None:
        self._lake = lake
        self._source = source
        self._batch = batch
        self._outcomes = outcomes

    def counts(self) -> Counts:
        files = self._outcomes.where(F.col("kind") == FILE).select("counts")
        return counts_in(row.counts for row in files.collect())

    def stage_accepted(self, before: SourceWatermark, after: SourceWatermark) -> list[Staged]:
        day = F.expr(f"event_time_us - pmod(event_time_us, {DAY_US})")  # one file for each
        rows = self._outcomes.where(F.col("kind") == ACCEPTED).repartition(day)
        made = partial(bronze_rows_of, self._source, before=before, after=after)
        table, schema = self._lake.bronze(self._source.name), bronze_schema(self._source)
        return staged(rows.sortWithinPartitions("event_time_us"), table, schema, "event_date", made)

    def stage_refused(self) -> list[Staged]:
        rows = self._outcomes.where(F.col("kind") == REFUSED).coalesce(1)
        made = partial(quarantine_rows_of, self._source, at_us=self._batch.ingested_at_us)
        table = self._lake.quarantine(self._source.name)
        return staged(rows, table, quarantine_schema(self._source), None, made)


def parsed_on(spark: SparkSession) -> Parse:
    """Return the function that parses a batch by the workers of `spark`."""

    @contextmanager
    def parse(lake: Lake, source: Source, batch: Batch, read: ReadSplit) -> Iterator[ParsedOnSpark]:
        outcomes = parse_batch(spark, source, batch, read)
        # Or two writes and a count would read and parse the files three times.
        outcomes.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield ParsedOnSpark(lake, source, batch, outcomes)
        finally:
            outcomes.unpersist()

    return parse


def parse_batch(spark: SparkSession, source: Source, batch: Batch, read: ReadSplit) -> DataFrame:
    """Return all rows of the batch's splits, and the splits, as `outcome_schema` has them."""
    numbers = spark.createDataFrame([(n,) for n in range(len(batch.splits))], "number INT")
    schema = outcome_schema(source)

    def parse(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        splits = (batch.splits[n] for part in given for n in part["number"].to_pylist())
        yield from in_batches(chain.from_iterable(map(read, splits)), schema)

    ddl = ", ".join(f"`{column.name}` {sql_name(column.type)}" for column in schema)
    return numbers.mapInArrow(parse, ddl)
