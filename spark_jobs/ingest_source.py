"""Take what has landed for a source into bronze, and what is no event into quarantine.

    python -m spark_jobs.ingest_source --source signals --lake lake

Repeating a batch after a crash changes nothing: both tables remember the batches they
have, and a batch that is repeated keeps its files and its ingestion time.
"""

import argparse
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from include.lake import Lake, open_lake
from include.landing_position import newest_committed_batch, read_planned_batch
from include.lease import hold_lease
from include.streams import Source, source_named
from spark_jobs import job
from spark_jobs.lake import bronze
from spark_jobs.lake.exactly_once import append_once
from spark_jobs.lake.ingest_checkpoint import app_id, refuse_foreign_checkpoint
from spark_jobs.lake.landing import ACCEPTED, FILE, REFUSED, parse_batch, stream_of_batches


class RowsLostError(Exception):
    """Landed rows are neither in bronze nor in quarantine."""


@dataclass(frozen=True)
class RunCounts:
    """What one run committed; the names are columns of ops/runs."""

    batches: int = 0
    files_landed: int = 0
    rows_landed: int = 0
    rows_bronze: int = 0
    rows_quarantined: int = 0

    def __add__(self, other: "RunCounts") -> "RunCounts":
        theirs = asdict(other)
        return RunCounts(**{name: count + theirs[name] for name, count in asdict(self).items()})


class BatchWriter:
    """Writes each batch to bronze and to quarantine, once."""

    def __init__(self, lake: Lake, source: Source) -> None:
        self._lake = lake
        self._source = source
        self._counts: dict[int, RunCounts] = {}

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """The body of `foreachBatch`."""
        planned = read_planned_batch(self._lake, self._source.name, batch_id)
        parsed = parse_batch(batch.sparkSession, self._lake, self._source, planned)
        # Two writes and a count: without it, files would be opened and judged three times.
        parsed.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            counts, newest_event_us = summarize(parsed, len(planned.files))
            if newest_event_us is not None:
                self._write_bronze(parsed, batch_id, planned.ingested_at_us, newest_event_us)
            if counts.rows_quarantined:
                self._write_quarantine(parsed, batch_id, planned.ingested_at_us)
        finally:
            parsed.unpersist()
        self._counts[batch_id] = counts

    def counts_until(self, newest_committed: int) -> RunCounts:
        """The sum over this run's batches, without one that was written and not committed.

        The run that repeats such a batch counts it.
        """
        done = (counts for batch, counts in self._counts.items() if batch <= newest_committed)
        return reduce(RunCounts.__add__, done, RunCounts())

    def _write_bronze(
        self, parsed: DataFrame, batch_id: int, ingested_at_us: int, newest_event_us: int
    ) -> None:
        before_us = bronze.read_watermark_us(parsed.sparkSession, self._lake, self._source)
        after_us = bronze.watermark_after(before_us, newest_event_us, ingested_at_us)
        append_once(
            bronze.bronze_rows(parsed, self._source, ingested_at_us, before_us, after_us),
            self._lake.bronze(self._source.name),
            app_id(self._lake, self._source, "bronze"),
            batch_id,
            {bronze.WATERMARK_KEY: after_us, "batch_id": batch_id},
        )

    def _write_quarantine(self, parsed: DataFrame, batch_id: int, ingested_at_us: int) -> None:
        append_once(
            bronze.quarantine_rows(parsed, ingested_at_us),
            self._lake.quarantine(self._source.name),
            app_id(self._lake, self._source, "quarantine"),
            batch_id,
        )


def summarize(parsed: DataFrame, files_planned: int) -> tuple[RunCounts, int | None]:
    """A parsed batch in numbers, and its newest event time.

    Raises RowsLostError when they do not add up to the batch's files and the rows in them.
    """
    kind = F.col("kind")
    row: Any = parsed.agg(
        F.count_if(kind == FILE),
        F.coalesce(F.sum("rows_in_file"), F.lit(0)),
        F.count_if(kind == ACCEPTED),
        F.count_if(kind == REFUSED),
        F.max("event_time_us"),
    ).collect()[0]
    files, landed, accepted, refused, newest_event_us = row
    if files != files_planned or landed != accepted + refused:
        raise RowsLostError(
            f"{files} of {files_planned} files were read; {landed} rows landed in them, "
            f"but {accepted} were accepted and {refused} refused"
        )
    return RunCounts(1, files, landed, accepted, refused), newest_event_us


def ingest(
    spark: SparkSession, lake: Lake, source: Source, record: job.RunRecord | None = None
) -> RunCounts:
    """Drain landing; a `record` gets the counts, too, and also when it fails half-way."""
    refuse_foreign_checkpoint(lake, source)
    bronze.create_tables(spark, lake, source)
    landing = lake.path_in_filesystem(lake.landing(source.name))
    lake.filesystem.create_dir(landing, recursive=True)  # a fresh lake has none: nothing landed
    writer = BatchWriter(lake, source)
    try:
        drain(spark, lake, source, writer)
    finally:
        counts = writer.counts_until(newest_committed_batch(lake, source.name))
        if record is not None:
            record |= asdict(counts)
    return counts


def drain(spark: SparkSession, lake: Lake, source: Source, writer: BatchWriter) -> None:
    """One availableNow run of the query `ingest_<source>`."""
    query = (
        stream_of_batches(spark, lake, source)
        .writeStream.foreachBatch(writer.write)
        .queryName(f"ingest_{source.name}")
        .option("checkpointLocation", lake.ingest_checkpoint(source.name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    return job.job_parser(__doc__, "source").parse_args(arguments)


def main() -> None:
    arguments = parse_args()
    source = source_named(arguments.source)
    lake = open_lake(arguments.lake)
    with (
        hold_lease(lake, f"ingest-{source.name}"),
        job.recorded_run(lake, "ingest_source", source.name, arguments.dag_run_id) as record,
    ):
        ingest(job.spark_session("ingest"), lake, source, record)


if __name__ == "__main__":
    job.exit_with_main(main)
