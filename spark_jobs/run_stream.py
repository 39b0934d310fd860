"""Drain a stream: fold all of bronze that has not been folded, and write its Delta table.

    spark-submit spark_jobs/run_stream.py --stream user_counts --lake /data/lake

The stream's position is its checkpoint: running again with nothing new changes nothing, and
a run that was killed is finished by the next one.
"""

import importlib
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from pyspark.sql import SparkSession

from include.lake import Lake, LakeError, open_lake
from include.lease import hold_lease
from include.stream_position import current_generation
from include.streams import Stream, stream_named
from spark_jobs.engines.live import live_fold
from spark_jobs.engines.live_batch import BatchWriter
from spark_jobs.engines.schemas import keys_ddl, states_ddl
from spark_jobs.job import RunRecord, exit_with_main, recorded_run, spark_session
from spark_jobs.lake.batches import last_batch, record_progress
from spark_jobs.lake.generations import pin_generation
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
    module = importlib.import_module(f"spark_jobs.streams.{stream.name}")
    generation = current_generation(lake, stream.name)
    fold = module.FOLD
    pin_generation(lake, stream, generation, f"{keys_ddl(fold)}, {states_ddl(fold)}")
    table = ProductTable(lake.table(stream.name), fold, module.COMMENTS)
    table.ensure(spark, comment=(module.__doc__ or stream.name).splitlines()[0])
    writer = BatchWriter(lake, stream.name, generation, fold, table, record["run_id"])
    bronze = (
        spark.readStream.format("delta")
        .option("maxFilesPerTrigger", NO_FILE_LIMIT)
        .load(lake.bronze(stream.source))
    )
    query = (
        live_fold(bronze, fold, stream.buckets, stream.state_partitions, stream.watermark_delay)
        .writeStream.queryName(stream.name)
        .foreachBatch(writer)
        .option("checkpointLocation", lake.checkpoint(stream.name, generation))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    record_progress(lake, stream.name, generation, query.recentProgress)
    record |= writer.totals()
    newest = last_batch(lake, stream.name, generation)
    if newest is not None:
        record |= {"rows_pending": newest["rows_pending"], "until": newest["until"]}


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--stream", required=True, help="an entry of include/streams.py")
    parser.add_argument("--lake", required=True, help="the lake's folder or URI")
    parser.add_argument("--dag-run-id", help="the Airflow Dag run, for ops/runs")
    return parser.parse_args(argv)


def main() -> None:
    args = parse_args()
    stream, lake = stream_named(args.stream), open_lake(args.lake)
    drain(spark_session(f"{JOB}-{stream.name}"), lake, stream, args.dag_run_id)


if __name__ == "__main__":
    exit_with_main(main)
