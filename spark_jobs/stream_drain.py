"""One availableNow run of a stream: what every job that moves its checkpoint on does."""

from dataclasses import replace
from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession

from include.checkpoint import newest_committed, newest_planned
from include.findings import Finding, record_error, record_findings
from include.generations import current_generation, current_row, is_reseeded
from include.lake import Lake
from include.lease import hold_lease
from include.rocksdb.profiles import profile_for_run
from include.spark_conf import COMPACTING
from include.streams import Stream, source_named
from spark_jobs.engines.live import live_fold
from spark_jobs.engines.live_batch import BatchWriter
from spark_jobs.fold.definition import KeyedFold
from spark_jobs.job import RunRecord, session_settings
from spark_jobs.lake.batches import complete_until, last_batch, record_progress
from spark_jobs.lake.clock_row import write_still_row
from spark_jobs.lake.generations import pin_generation, refuse_foreign_checkpoint
from spark_jobs.lake.row_counts import RowCountError, check_rows_add_up
from spark_jobs.lake.run_findings import findings_of_run
from spark_jobs.lake.tables import ProductTable
from spark_jobs.plans.stream_identity import stream_identity
from spark_jobs.stream_definition import load_definition, pinned_settings
from spark_jobs.stream_start import Start, plan_start, write_initial_rows

# A batch must not cut a bronze commit, and Delta's default limit of 1,000 files could.
NO_FILE_LIMIT = str(2**31 - 1)
ONE_FILE = "1"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
# Ingest goes on in other Dags of the source.
INGEST_PATIENCE = timedelta(minutes=10)


def drain_stream(
    spark: SparkSession, lake: Lake, stream: Stream, record: RunRecord, compacting: bool = False
) -> None:
    """Fold what is new in bronze, and add to the run's `record` what was done.

    `compacting`: under the settings of a compaction, and each file a batch of its own, so that
    only clock rows may be new. To be called under the stream's lease. Raises
    StreamingQueryException when a batch fails.
    """
    stream = as_pinned(lake, stream)
    profile = profile_for_run(lake, stream)
    settings = {**profile.conf(), **(COMPACTING if compacting else {})}
    settings[SHUFFLE_PARTITIONS] = str(stream.state_partitions)
    files_per_batch = ONE_FILE if compacting else NO_FILE_LIMIT
    with session_settings(spark, settings):
        _drain(spark, lake, stream, record, files_per_batch, profile.number)


def _drain(
    spark: SparkSession,
    lake: Lake,
    stream: Stream,
    record: RunRecord,
    files_per_batch: str,
    profile: int,
) -> None:
    definition = load_definition(stream)
    fold = definition.fold
    generation = current_generation(lake, stream.name)
    refuse_foreign_checkpoint(lake, stream.name, generation)
    code = stream_identity(lake, stream).code
    start = plan_start(spark, lake, stream.name, generation, fold)
    table = ProductTable(lake.table(stream.name), fold, definition.comments)
    table.ensure(spark, comment=definition.title)
    writer = BatchWriter(
        lake,
        stream.name,
        generation,
        fold,
        table,
        record["run_id"],
        start.kept_at_start,
        profile,
        start.pending_at_start,
    )
    folded = plan_fold(spark, lake, stream, fold, start, files_per_batch)
    # Last: what a failed first attempt got wrong must not be pinned.
    pins = pinned_settings(stream, fold) | start.pins
    if pin_generation(lake, stream, generation, pins, code):
        record_findings(lake, record["run_id"], stream.name, [code_changed(stream.name)])
    if start.first_version is not None:
        begin_seeded_generation(spark, lake, stream, generation)
    write_initial_rows(lake, table, fold, stream.name, generation, start)
    checkpoint = lake.checkpoint(stream.name, generation)
    query = (
        folded.writeStream.queryName(stream.name)
        .foreachBatch(writer)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        newest = newest_committed(lake, checkpoint)
        record |= writer.totals(newest)
        findings = findings_of_run(writer.committed(newest))
        record_findings(lake, record["run_id"], stream.name, findings)
    record_progress(lake, stream.name, generation, query.recentProgress)
    record_position(lake, stream, generation, record)
    check_rows(lake, stream, generation, record["run_id"])


def plan_fold(
    spark: SparkSession,
    lake: Lake,
    stream: Stream,
    fold: KeyedFold,
    start: Start,
    files_per_batch: str,
) -> DataFrame:
    """What the stream folds of its bronze, batch by batch."""
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", files_per_batch)
    if start.first_version is not None:
        reader = reader.option("startingVersion", str(start.first_version))
    return live_fold(
        reader.load(lake.bronze(stream.source)),
        fold,
        stream.buckets,
        stream.state_partitions,
        stream.watermark_delay,
        start.seed,
    )


def as_pinned(lake: Lake, stream: Stream) -> Stream:
    """`stream` with the buckets and state partitions that its generation was made with.

    The entry's are for a first generation; afterwards only a reseed changes them.
    """
    row = current_row(lake, stream.name)
    if row is None or not is_reseeded(row):
        return stream
    return replace(stream, buckets=row["buckets"], state_partitions=row["state_partitions"])


def begin_seeded_generation(
    spark: SparkSession, lake: Lake, stream: Stream, generation: int
) -> None:
    """Give a reseeded generation something to read, so that its first batch takes the seed in."""
    if newest_planned(lake, lake.checkpoint(stream.name, generation)) is None:
        with hold_lease(lake, f"ingest-{stream.source}", INGEST_PATIENCE):
            write_still_row(spark, lake, source_named(stream.source))


def code_changed(stream: str) -> Finding:
    """A warning: the state is now made by two codes."""
    return Finding(
        finding="code_changed",
        severity="warning",
        detail="The stream's function, settings or initial state are not those that its state was "
        "made with: from here on its rows come of both. Its live savepoints serve no backfill",
        action=f"to have all of it by the new code: make reseed STREAM={stream} RECOMPUTE=1 APPLY=1",
    )


def record_position(lake: Lake, stream: Stream, generation: int, record: RunRecord) -> None:
    """How far the table is complete, and what waits, into the run's record."""
    record["until"] = complete_until(lake, stream.name, generation)
    newest = last_batch(lake, stream.name, generation)
    if newest is not None:
        record["rows_pending"] = newest["rows_pending"]


def check_rows(lake: Lake, stream: Stream, generation: int, run_id: str) -> None:
    """Fail the run, with a finding, when rows do not add up."""
    try:
        check_rows_add_up(lake, stream.name, stream.source, generation)
    except RowCountError as error:
        record_error(lake, run_id, stream.name, "rows_do_not_add_up", error)
        raise
