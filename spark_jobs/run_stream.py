"""Drain a stream: fold all of bronze that has not been folded, and write its Delta table.

    spark-submit spark_jobs/run_stream.py --stream user_counts --lake /data/lake

The stream's position is its checkpoint: running again with nothing new changes nothing, and
a batch that was killed is finished by the next run. (A run killed between its batch with data
and the one without, which settles the other buckets: they settle with the next new data, and
until then `until` says so.)
"""

from argparse import Namespace
from collections.abc import Sequence

from pyspark.sql import SparkSession

from include.lake import Lake, LakeError, open_lake
from include.lease import hold_lease
from include.streams import Stream, stream_named
from spark_jobs.job import exit_with_main, job_parser, recorded_run, spark_session
from spark_jobs.live_savepoint import write_if_due
from spark_jobs.reseed_stream import finish_open_reseed
from spark_jobs.stream_drain import drain_stream

JOB = "run_stream"


def drain(spark: SparkSession, lake: Lake, stream: Stream, dag_run_id: str | None = None) -> None:
    """Fold what is new in bronze and record the run.

    Raises LakeError when there is no bronze yet, StreamingQueryException when a batch fails:
    the next run repeats it.
    """
    if not lake.is_delta_table(lake.bronze(stream.source)):
        raise LakeError(
            f"no bronze table at {lake.bronze(stream.source)}: ingest {stream.source} first"
        )
    with hold_lease(lake, f"stream-{stream.name}"):
        finish_open_reseed(spark, lake, stream, dag_run_id)
        with recorded_run(lake, JOB, stream.name, dag_run_id) as record:
            drain_stream(spark, lake, stream, record)
            write_if_due(spark, lake, stream, record["run_id"])


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    return job_parser(__doc__, "stream").parse_args(argv)


def main() -> None:
    args = parse_args()
    stream, lake = stream_named(args.stream), open_lake(args.lake)
    drain(spark_session(f"{JOB}-{stream.name}", lake), lake, stream, args.dag_run_id)


if __name__ == "__main__":
    exit_with_main(main)
