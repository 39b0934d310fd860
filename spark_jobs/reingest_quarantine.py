"""Take the open rows of a source's quarantine in again, as they are or corrected.

    python -m spark_jobs.reingest_quarantine --source signals --lake lake --corrections mended.jsonl

Each line of the corrections is {"quarantine_id": "...", "raw": "..."}. Every open row is
judged by today's rules; what is accepted goes to bronze, and the rest stays open with its
reason of today. A file that was refused as a whole is read again from landing: mend it there.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from include import job
from include.fold.admission import EPOCH, MICROSECOND
from include.lake.delta_log import refuse_older
from include.lake.lease import hold_lease
from include.lake.paths import Lake, open_lake
from include.landing.arrivals import refused_columns
from include.landing.batch import Batch
from include.landing.bronze_commits import clock_after, read_clock
from include.landing.bronze_tables import add_rescued, follow_fields
from include.landing.clock import check_clock_order
from include.landing.clock_repair import refuse_before_reset
from include.landing.ingest import RowsLostError, RunCounts
from include.landing.ingest_seal import REINGESTED_KEY, refuse_changed_tables, seal_tables
from include.landing.open_rows import judge_again, outcomes_again
from include.landing.origin import reader_of_parts
from include.landing.parse_files import ACCEPTED, FILE, REFUSED
from include.registry import source_named
from include.settings import Source
from spark_jobs.job import exit_with_main, spark_session
from spark_jobs.tables import landing as bronze
from spark_jobs.tables.corrections import (
    accepted_rows,
    corrected_rows,
    read_corrections,
    refuse_changed,
    refuse_corrections,
    taken,
)
from spark_jobs.tables.landing import append_in_order, ddl, in_arrow
from spark_jobs.tables.product import USER_METADATA, session_settings

REINGESTED = {REINGESTED_KEY: True}
CORRECTION = "quarantine_id STRING, corrected STRING"


def reingest(
    spark: SparkSession,
    lake: Lake,
    source: Source,
    corrections: Mapping[str, str],
    now: datetime,
) -> RunCounts:
    """Judge all open rows; the counts are what this changes in bronze and in quarantine.

    Of a file that is readable now, its rows have landed and the file itself no longer has.
    """
    refuse_before_reset(lake, source.name, "re-ingestion")
    refuse_changed_tables(lake, source)
    if not lake.is_delta_table(lake.quarantine(source.name)):
        refuse_corrections(corrections, {})
        return RunCounts()
    follow_fields(lake, source)
    quarantine = spark.read.format("delta").load(lake.quarantine(source.name))
    refuse_corrections(corrections, corrected_rows(quarantine, corrections))
    now_us = (now - EPOCH) // MICROSECOND
    rows = with_corrections(quarantine, source, corrections)
    judged = judge(lake, source, rows, now_us)
    judged.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts = summarize(judged)
        stored = spark.read.format("delta").load(lake.bronze(source.name))
        refuse_changed(stored, judged, rows, source)
        # Bronze first: a row in both tables can be found again, a row in none cannot.
        append_new(spark, lake, source, judged, now_us)
        resolve(spark, lake, source, judged, now_us)
    finally:
        judged.unpersist()
    seal_tables(lake, source.name)
    return counts


def with_corrections(
    quarantine: DataFrame, source: Source, corrections: Mapping[str, str]
) -> DataFrame:
    """The open rows, each with its newest correction."""
    corrected = quarantine.sparkSession.createDataFrame(list(corrections.items()), CORRECTION)
    rows = quarantine.where(F.col("resolved_at").isNull())
    return rows.join(F.broadcast(corrected), "quarantine_id", "left").select(
        "quarantine_id",
        "source_file",
        "row_number",
        "raw",
        F.coalesce("corrected", "correction").alias("correction"),
        F.struct("reason_code", "reason", "correction").alias("known"),
        *(column.name for column in refused_columns(source)),
    )


def judge(lake: Lake, source: Source, rows: DataFrame, now_us: int) -> DataFrame:
    """What changes: for open rows, and for each row of the files that can be read now."""
    schema = outcomes_again(source)
    read = reader_of_parts(lake, source, Batch("", 0, (), now_us))
    parse = partial(judge_again, read, source, now_us)
    return rows.mapInArrow(in_arrow(parse, schema), ddl(schema))


def summarize(judged: DataFrame) -> RunCounts:
    """What changes; RowsLostError when the rows do not add up to those in the mended files."""
    is_accepted, is_new = F.col("kind") == ACCEPTED, F.col("is_new")
    row: Any = judged.agg(
        F.count_if(is_accepted),
        F.count_if(is_accepted & ~is_new) + F.count_if(F.col("kind") == FILE),
        F.count_if(is_new),
        F.count_if(is_new & ~is_accepted),
        F.coalesce(F.sum("rows_in_file"), F.lit(0)),
    ).collect()[0]
    taken, resolved, new, newly_refused, rows_in_files = row
    if new != rows_in_files:
        raise RowsLostError(f"{rows_in_files} rows in mended files, but {new} were judged")
    quarantined = newly_refused - resolved
    return RunCounts(
        batches=int(taken > 0),
        rows_landed=taken + quarantined,
        rows_bronze=taken,
        rows_quarantined=quarantined,
    )


def append_new(
    spark: SparkSession, lake: Lake, source: Source, judged: DataFrame, now_us: int
) -> None:
    """Append the accepted rows to bronze in one commit, but for those of a run that died.

    Such a run had appended and not resolved them; they are known by their source_file.
    """
    path = lake.bronze(source.name)
    if judged.isEmpty():
        return
    given = accepted_rows(judged)
    known = taken(spark.read.format("delta").load(path))
    new = given.join(known.select("source_file"), "source_file", "left_anti")
    newest: Any = new.agg(F.max("event_time_us"), F.count("rescued")).collect()[0]
    newest_event_us, rescued = newest
    if newest_event_us is None:
        return
    if rescued:
        add_rescued(lake, source)
    groups = bronze.newest_of_groups(new, source)

    def append() -> None:
        before = read_clock(lake, source)
        after = clock_after(before, newest_event_us, now_us, groups)
        rows = bronze.bronze_rows(new, source, before, after, rescued > 0)
        metadata = json.dumps(after.metadata() | REINGESTED)
        refuse_older(path)
        rows.write.format("delta").mode("append").option("userMetadata", metadata).save(path)
        check_clock_order(lake, source, before, after)

    append_in_order(spark, append)


def resolve(
    spark: SparkSession, lake: Lake, source: Source, judged: DataFrame, now_us: int
) -> None:
    """Write to quarantine what became of each row, in one commit."""
    if judged.isEmpty():
        return
    now = F.timestamp_micros(F.lit(now_us))
    columns = ("quarantine_id", "reason_code", "reason", "raw", "source_file", "row_number")
    newly_refused: dict[str, str | Column] = {name: f"s.{name}" for name in columns}
    new_reason: dict[str, str | Column] = {
        name: f"s.{name}" for name in ("reason_code", "reason", "correction")
    }
    merge = (
        DeltaTable.forPath(spark, lake.quarantine(source.name))
        .alias("t")
        .merge(judged.alias("s"), "t.quarantine_id = s.quarantine_id")
        .whenMatchedUpdate(
            f"s.kind IN ('{ACCEPTED}', '{FILE}')",
            {"resolved_at": now, "correction": F.col("s.correction")},
        )
        .whenMatchedUpdate(f"s.kind = '{REFUSED}'", new_reason)
        .whenNotMatchedInsert(
            f"s.kind = '{REFUSED}'",
            newly_refused | {"ingested_at": now},
        )
    )
    refuse_older(lake.quarantine(source.name))
    with session_settings(spark, {USER_METADATA: json.dumps(REINGESTED)}):
        merge.execute()


def main() -> None:
    parser = job.job_parser(__doc__, "source")
    parser.add_argument("--corrections", type=Path, help="a file of corrected rows, see above")
    arguments = parser.parse_args()
    source = source_named(arguments.source)
    lake = open_lake(arguments.lake)
    corrections = read_corrections(arguments.corrections) if arguments.corrections else {}
    with (
        hold_lease(lake, f"ingest-{source.name}"),
        job.recorded_run(lake, "reingest_quarantine", source.name, arguments.dag_run_id) as record,
    ):
        spark = spark_session("reingest", lake)
        record |= asdict(reingest(spark, lake, source, corrections, datetime.now(UTC)))


if __name__ == "__main__":
    exit_with_main(main)
