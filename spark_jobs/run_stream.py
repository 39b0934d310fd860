"""Drain a stream: fold all of bronze that has not been folded, and write its Delta table.

    spark-submit spark_jobs/run_stream.py --stream user_counts --lake /data/lake

Running again with nothing new changes nothing, and a batch that was killed is finished by the next
run. Other small runs of the source that are due can be taken into the same JVM (`--also`).
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from include.job import job_parser, recorded_run
from include.lake.lease import hold_lease
from include.lake.paths import Lake
from include.registry import declared
from include.settings import Stream
from include.stream.bronze import refuse_no_bronze
from include.stream.open_stream import has_waiting_rows, open_stream
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import close_state_stores, exit_with_main, stream_job
from spark_jobs.stream_drain import drain_stream, stay_in_log
from spark_jobs.write_savepoint import write_if_due

log = logging.getLogger("job")

JOB = "run_stream"


def drain(engine: SparkEngine, lake: Lake, stream: Stream, dag_run_id: str | None = None) -> None:
    """Fold what is new in bronze and record the run; a batch that fails is repeated by the next."""
    refuse_no_bronze(lake, stream.source)
    with hold_lease(lake, f"stream-{stream.name}"):
        opened = open_stream(lake, stream)
        opened.refuse_run()
        with recorded_run(lake, JOB, stream.name, dag_run_id=dag_run_id) as record:
            stay_in_log(opened)
            write_if_due(engine, drain_stream(engine, opened, record), record["run_id"])


def drain_others(
    engine: SparkEngine,
    lake: Lake,
    others: Sequence[Stream],
    dag_run_id: str | None,
    make_ready: Callable[[], None],
) -> None:
    """Drain each of `others` that still has to; one that fails is left to its own run.

    None is begun once the JVM has died, which `make_ready` tells: it would count as failed.
    """
    for stream in others:
        try:
            make_ready()
            if has_waiting_rows(lake, stream):
                drain(engine, lake, stream, dag_run_id)
        except Exception:
            log.exception("%s is left to its own run", stream.name)


def main() -> None:
    parser = job_parser(__doc__, "stream")
    parser.add_argument("--also", nargs="*", default=[], help="other streams that are due")
    args = parser.parse_args()
    others = [other for other in declared().streams if other.name in args.also]
    with stream_job(JOB, args) as (spark, lake, stream):
        engine = SparkEngine(spark)
        drain(engine, lake, stream, args.dag_run_id)
    # Each has the memory of one.
    make_ready = partial(close_state_stores, spark)
    drain_others(engine, lake, others, dag_run_id=args.dag_run_id, make_ready=make_ready)


if __name__ == "__main__":
    exit_with_main(main)
