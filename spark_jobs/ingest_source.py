"""Take what has landed for a source into bronze, and what is no event into quarantine.

    python -m spark_jobs.ingest_source --source signals --lake lake

Repeating a batch after a crash changes nothing: both tables remember the batches they
have, and a batch that is repeated keeps its files and the time by which it judges them.
A run of a source with a clock ends with a clock row, where one is due (include/landing/clock.py).
"""

import argparse
import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from include.lake.findings import record_findings
from include.lake.lease import hold_lease
from include.lake.paths import Lake, open_lake
from include.landing.bronze_tables import create_tables
from include.landing.clock import check_clock_order
from include.landing.clock_repair import refuse_before_reset
from include.landing.file_log_seal import check_file_log, seal_file_log
from include.landing.ingest_checkpoint import app_id, refuse_foreign_checkpoint
from include.landing.ingest_seal import seal_tables
from include.landing.position import newest_committed_batch, read_planned_batch
from include.registry import source_named
from include.settings import Source
from spark_jobs import job
from spark_jobs.tables import bronze
from spark_jobs.tables.clock_row import write_clock_row
from spark_jobs.tables.exactly_once import append_once, rows_committed
from spark_jobs.tables.landing import ACCEPTED, FILE, REFUSED, parse_batch, stream_of_batches
from spark_jobs.tables.ordered_append import append_in_order
from spark_jobs.tables.watermark_jump import Jump, find_jump, jump_findings

# A compaction of a stream's state holds the lease for half a minute or so.
COMPACTION_PATIENCE = timedelta(minutes=2)


class RowsLostError(Exception):
    """Landed rows are neither in bronze nor in quarantine, or they are there twice."""


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

    def __init__(self, lake: Lake, source: Source, lost: frozenset[str] = frozenset()) -> None:
        """`lost`: files that the tables have, though the checkpoint's file log lacks them."""
        self._lake = lake
        self._source = source
        self._lost = lost
        self._counts: dict[int, RunCounts] = {}
        self.jumps: list[Jump] = []  # of the watermark, by this run's commits

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """The body of `foreachBatch`."""
        planned = read_planned_batch(self._lake, self._source.name, batch_id)
        files = tuple(name for name in planned.files if name not in self._lost)
        planned = replace(planned, files=files)
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
        self._check_written(batch_id, counts)
        # Before Spark commits the batch: whatever its checkpoint has taken is sealed by then.
        seal_tables(self._lake, self._source.name)
        seal_file_log(self._lake, self._source.name)
        self._counts[batch_id] = counts

    def counts_until(self, newest_committed: int) -> RunCounts:
        """The sum over this run's batches, without one that was written and not committed.

        The run that repeats such a batch counts it.
        """
        done = (counts for batch, counts in self._counts.items() if batch <= newest_committed)
        return reduce(RunCounts.__add__, done, RunCounts())

    def _write_bronze(
        self, parsed: DataFrame, batch_id: int, planned_us: int, newest_event_us: int
    ) -> None:
        def append() -> None:
            before = bronze.read_clock(parsed.sparkSession, self._lake, self._source)
            after = bronze.clock_after(before, newest_event_us, planned_us)
            append_once(
                bronze.bronze_rows(parsed, self._source, before, after),
                self._lake.bronze(self._source.name),
                app_id(self._lake, self._source, "bronze"),
                batch_id,
                json.dumps(after.metadata() | {"batch_id": batch_id}),
            )
            check_clock_order(self._lake, self._source, before, after)
            if jump := find_jump(parsed, self._source, before, after):
                self.jumps.append(jump)

        append_in_order(parsed.sparkSession, append)

    def _write_quarantine(self, parsed: DataFrame, batch_id: int, planned_us: int) -> None:
        append_once(
            bronze.quarantine_rows(parsed, planned_us),
            self._lake.quarantine(self._source.name),
            app_id(self._lake, self._source, "quarantine"),
            batch_id,
        )

    def _check_written(self, batch_id: int, counts: RunCounts) -> None:
        """RowsLostError unless the tables' own logs have the batch's rows, from now or before."""
        name = self._source.name
        for table, path, judged in (
            ("bronze", self._lake.bronze(name), counts.rows_bronze),
            ("quarantine", self._lake.quarantine(name), counts.rows_quarantined),
        ):
            written = rows_committed(
                self._lake, path, app_id(self._lake, self._source, table), batch_id
            )
            if written != judged:
                raise RowsLostError(
                    f"batch {batch_id} of {name} has {judged} rows for {path}, but its commit "
                    f"there has {written}. If an earlier run began the batch, and one of its "
                    "files or the source's entry was changed since, put that back as it was and "
                    "run again; else keep the lake as it is and compare the table with landing"
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
    spark: SparkSession,
    lake: Lake,
    source: Source,
    record: job.RunRecord | None = None,
    interval_end: datetime | None = None,
) -> RunCounts:
    """Drain landing, and write a clock row where one is due (`interval_end`: of the Dag run).

    A `record` gets the counts, too, and also when it fails half-way.
    """
    refuse_before_reset(lake, source.name, "ingestion")
    refuse_foreign_checkpoint(lake, source)
    create_tables(lake, source)
    landing = lake.path_in_filesystem(lake.landing(source.name))
    lake.filesystem.create_dir(landing, recursive=True)  # a fresh lake has none: nothing landed
    seal_tables(lake, source.name)
    lost, findings = check_file_log(lake, source.name)
    run_id = (record or {}).get("run_id")
    record_findings(lake, run_id, source.name, findings)
    writer = BatchWriter(lake, source, lost)
    try:
        drain(spark, lake, source, writer)
    finally:
        counts = writer.counts_until(newest_committed_batch(lake, source.name))
        if record is not None:
            record |= asdict(counts)
        record_findings(lake, run_id, source.name, jump_findings(source, writer.jumps))
    bounded = write_clock_row(spark, lake, source, interval_end, datetime.now(UTC))
    record_findings(lake, run_id, source.name, bounded)
    seal_tables(lake, source.name)
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
    parser = job.job_parser(__doc__, "source")
    parser.add_argument(
        "--interval-end",
        type=instant_or_none,
        metavar="INSTANT",
        help="where the Dag run's data interval ends, with a zone; empty or left out: now",
    )
    return parser.parse_args(arguments)


def instant_or_none(text: str) -> datetime | None:
    """An ISO instant of the command line; an empty text is none, as Airflow's template gives."""
    if not text:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if instant.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no zone: end it with Z, for UTC")
    return instant


def main() -> None:
    arguments = parse_args()
    source = source_named(arguments.source)
    lake = open_lake(arguments.lake)
    with (
        hold_lease(lake, f"ingest-{source.name}", COMPACTION_PATIENCE),
        job.recorded_run(lake, "ingest_source", source.name, arguments.dag_run_id) as record,
    ):
        ingest(job.spark_session("ingest", lake), lake, source, record, arguments.interval_end)


if __name__ == "__main__":
    job.exit_with_main(main)
