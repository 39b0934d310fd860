"""Drain a stream: fold all of bronze that has not been folded, and write its Delta table.

    spark-submit spark_jobs/run_stream.py --stream user_counts --lake /data/lake

The stream's position is its checkpoint: running again with nothing new changes nothing, and
a batch that was killed is finished by the next run. (A run killed between its batch with data
and the one without, which settles the other buckets: they settle with the next new data, and
until then `until` says so.)
"""

import importlib
import importlib.util
from argparse import Namespace
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from include.checkpoint import newest_committed
from include.lake import Lake, LakeError, open_lake
from include.lease import hold_lease
from include.stream_position import current_generation
from include.streams import MILLISECOND, SettingsError, Stream, source_named, stream_named
from spark_jobs.engines.live import live_fold
from spark_jobs.engines.live_batch import BatchWriter
from spark_jobs.engines.schemas import keys_ddl, states_ddl
from spark_jobs.fold.definition import KeyedFold
from spark_jobs.job import RunRecord, exit_with_main, job_parser, recorded_run, spark_session
from spark_jobs.lake.batches import complete_until, last_batch, record_progress
from spark_jobs.lake.generations import pin_generation, refuse_foreign_checkpoint
from spark_jobs.lake.tables import ProductTable

JOB = "run_stream"
# A batch must not cut a bronze commit, and Delta's default limit of 1,000 files could.
NO_FILE_LIMIT = str(2**31 - 1)


def drain(spark: SparkSession, lake: Lake, stream: Stream, dag_run_id: str | None = None) -> None:
    """Fold what is new in bronze and record the run.

    Raises LakeError when there is no bronze yet, StreamingQueryException when a batch fails:
    the next run repeats it.
    """
    if not lake.is_delta_table(lake.bronze(stream.source)):
        raise LakeError(
            f"no bronze table at {lake.bronze(stream.source)}: ingest {stream.source} first"
        )
    with (
        hold_lease(lake, f"stream-{stream.name}"),
        recorded_run(lake, JOB, stream.name, dag_run_id) as record,
    ):
        _run(spark, lake, stream, record)


def _run(spark: SparkSession, lake: Lake, stream: Stream, record: RunRecord) -> None:
    module = stream_module(stream.name)
    fold: KeyedFold = module.FOLD
    generation = current_generation(lake, stream.name)
    refuse_foreign_checkpoint(lake, stream.name, generation)
    check_required(fold, stream)
    table = ProductTable(lake.table(stream.name), fold, module.COMMENTS)
    table.ensure(spark, comment=(module.__doc__ or stream.name).splitlines()[0])
    writer = BatchWriter(lake, stream.name, generation, fold, table, record["run_id"])
    query = plan_query(spark, lake, stream, fold, writer)
    # Last: what a failed first attempt got wrong must not be pinned.
    pin_generation(lake, stream, generation, pinned_settings(stream, fold))
    checkpoint = lake.checkpoint(stream.name, generation)
    started = query.option("checkpointLocation", checkpoint).start()
    try:
        started.awaitTermination()
    finally:
        record |= writer.totals(newest_committed(lake, checkpoint))
    record_progress(lake, stream.name, generation, started.recentProgress)
    record["until"] = complete_until(lake, stream.name, generation)
    newest = last_batch(lake, stream.name, generation)
    if newest is not None:
        record["rows_pending"] = newest["rows_pending"]


def stream_module(name: str) -> ModuleType:
    """The stream's file. SettingsError when it is not there or lacks what every stream says."""
    path = f"spark_jobs/streams/{name}.py"
    if importlib.util.find_spec(f"spark_jobs.streams.{name}") is None:
        raise SettingsError(f"stream {name} has an entry in include/streams.py, but no {path}")
    module = importlib.import_module(f"spark_jobs.streams.{name}")
    for needed in ("FOLD", "COMMENTS"):
        if not hasattr(module, needed):
            raise SettingsError(f"{path} must define {needed}; see the README, Add a stream")
    unsaid = {column.name for column in module.FOLD.output_columns} - set(module.COMMENTS)
    if unsaid:
        raise SettingsError(f"{path}: COMMENTS says nothing of {', '.join(sorted(unsaid))}")
    return module


def plan_query(
    spark: SparkSession, lake: Lake, stream: Stream, fold: KeyedFold, writer: BatchWriter
) -> DataStreamWriter:
    """The stream's query, not started yet."""
    bronze = (
        spark.readStream.format("delta")
        .option("maxFilesPerTrigger", NO_FILE_LIMIT)
        .load(lake.bronze(stream.source))
    )
    folded = live_fold(
        bronze, fold, stream.buckets, stream.state_partitions, stream.watermark_delay
    )
    return folded.writeStream.queryName(stream.name).foreachBatch(writer).trigger(availableNow=True)


def check_required(fold: KeyedFold, stream: Stream) -> None:
    """Raise SettingsError when an Event field that is never None may be missing in bronze."""
    optional = {field.name for field in source_named(stream.source).fields if not field.required}
    for column in fold.event_columns:
        if column.name in optional and not column.nullable:
            raise SettingsError(
                f"stream {stream.name}: {fold.event.__name__}.{column.name} is never None, but "
                f"source {stream.source} does not require it: declare it `| None`, or required "
                "in include/streams.py"
            )


def pinned_settings(stream: Stream, fold: KeyedFold) -> dict[str, Any]:
    """What the state and the table of a stream stand on, as `ops/generations` names it."""
    return {
        "buckets": stream.buckets,
        "state_partitions": stream.state_partitions,
        "state_schema": f"{keys_ddl(fold)}, {states_ddl(fold)}",
        "source": stream.source,
        "key": fold.key,
        "output_mode": fold.output_mode,
        "watermark_delay_ms": stream.watermark_delay // MILLISECOND,
    }


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    return job_parser(__doc__, "stream").parse_args(argv)


def main() -> None:
    args = parse_args()
    stream, lake = stream_named(args.stream), open_lake(args.lake)
    drain(spark_session(f"{JOB}-{stream.name}"), lake, stream, args.dag_run_id)


if __name__ == "__main__":
    exit_with_main(main)
