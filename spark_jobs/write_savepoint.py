"""Write the state of a stream down as a savepoint, whatever its cadence.

    spark-submit spark_jobs/write_savepoint.py --stream user_counts --lake /data/lake

It is the state after the stream's last run. A compaction makes older states unreadable: this
keeps one.
"""

from argparse import Namespace
from collections.abc import Sequence

from include.lake import open_lake
from include.lease import hold_lease
from include.streams import stream_named
from spark_jobs.job import PATIENCE, exit_with_main, job_parser, recorded_run, spark_session
from spark_jobs.live_savepoint import write_live_savepoint

JOB = "write_savepoint"


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    return job_parser(__doc__, "stream").parse_args(argv)


def main() -> None:
    args = parse_args()
    stream, lake = stream_named(args.stream), open_lake(args.lake)
    spark = spark_session(f"{JOB}-{stream.name}", lake)
    with (
        hold_lease(lake, f"stream-{stream.name}", PATIENCE),
        recorded_run(lake, JOB, stream.name, args.dag_run_id) as record,
    ):
        write_live_savepoint(spark, lake, stream, record["run_id"], "on_demand")


if __name__ == "__main__":
    exit_with_main(main)
