"""One availableNow run of a stream: what every job that moves its checkpoint on does."""

from pyspark.sql import DataFrame, SparkSession

from include.checkpoint import newest_committed
from include.findings import record_error, record_findings
from include.generations import current_generation
from include.lake import Lake
from include.rocksdb.profiles import profile_for_run
from include.spark_conf import COMPACTING
from include.streams import Stream
from spark_jobs.engines.live import Seed, live_fold
from spark_jobs.engines.live_batch import BatchWriter
from spark_jobs.fold.definition import KeyedFold
from spark_jobs.job import RunRecord, session_settings
from spark_jobs.lake.batches import complete_until, last_batch, record_progress
from spark_jobs.lake.generations import pin_generation, refuse_foreign_checkpoint
from spark_jobs.lake.row_counts import RowCountError, check_rows_add_up
from spark_jobs.lake.run_findings import findings_of_run
from spark_jobs.lake.tables import ProductTable
from spark_jobs.stream_definition import load_definition, pinned_settings
from spark_jobs.stream_start import plan_start, write_initial_rows

# A batch must not cut a bronze commit, and Delta's default limit of 1,000 files could.
NO_FILE_LIMIT = str(2**31 - 1)
ONE_FILE = "1"


def drain_stream(
    spark: SparkSession, lake: Lake, stream: Stream, record: RunRecord, compacting: bool = False
) -> None:
    """Fold what is new in bronze, and add to the run's `record` what was done.

    `compacting`: under the settings of a compaction, and each file a batch of its own, so that
    only clock rows may be new. To be called under the stream's lease. Raises
    StreamingQueryException when a batch fails.
    """
    profile = profile_for_run(lake, stream)
    settings = {**profile.conf(), **(COMPACTING if compacting else {})}
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
    start = plan_start(spark, lake, stream.name, generation, fold)
    table = ProductTable(lake.table(stream.name), fold, definition.comments)
    table.ensure(spark, comment=definition.title)
    writer = BatchWriter(
        lake, stream.name, generation, fold, table, record["run_id"], start.kept_at_start, profile
    )
    folded = plan_fold(spark, lake, stream, fold, start.seed, files_per_batch)
    # Last: what a failed first attempt got wrong must not be pinned.
    pin_generation(lake, stream, generation, pinned_settings(stream, fold) | start.pins)
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
    seed: Seed | None,
    files_per_batch: str,
) -> DataFrame:
    """What the stream folds of its bronze, batch by batch."""
    bronze = (
        spark.readStream.format("delta")
        .option("maxFilesPerTrigger", files_per_batch)
        .load(lake.bronze(stream.source))
    )
    return live_fold(
        bronze, fold, stream.buckets, stream.state_partitions, stream.watermark_delay, seed
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
