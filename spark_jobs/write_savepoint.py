"""Write the state of a stream down as a savepoint, whatever its cadence.

    spark-submit spark_jobs/write_savepoint.py --stream user_counts --lake /data/lake

It is the state after the stream's last run. A compaction makes older states unreadable: this
keeps one.
"""

from include.job import PATIENCE, job_parser, recorded_run
from include.lake.lease import hold_lease
from include.lake.paths import Lake
from include.plans.open_stream import open_stream
from include.settings import Stream
from spark_jobs.engines.engine import Engine
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import exit_with_main, stream_job
from spark_jobs.live_savepoint import write_live_savepoint

JOB = "write_savepoint"


def savepoint(engine: Engine, lake: Lake, stream: Stream, dag_run_id: str | None = None) -> None:
    """Write the state of `stream` down, and record the run."""
    with hold_lease(lake, f"stream-{stream.name}", PATIENCE):
        opened = open_stream(lake, stream)
        opened.refuse_run()
        with recorded_run(lake, JOB, stream.name, dag_run_id=dag_run_id) as record:
            opened.refuse_other_checkpoint()
            write_live_savepoint(engine, opened, record["run_id"], origin="on_demand")


def main() -> None:
    args = job_parser(__doc__, "stream").parse_args()
    with stream_job(JOB, args) as (spark, lake, stream):
        savepoint(SparkEngine(spark), lake, stream, args.dag_run_id)


if __name__ == "__main__":
    exit_with_main(main)
