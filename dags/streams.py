"""One Dag per stream: take in what has landed, drain it into the table, tell the readers.

A stream's position is its checkpoint, not the Dag run's data interval: a run reads all that
is new, whatever its interval, and one that finds nothing new is skipped without starting a
JVM. Running it once more, by hand or on retry, is always safe.

| task | what it does | skipped when |
|---|---|---|
| `ingest` | files in `landing/<source>` to `bronze/<source>`, bad rows to `quarantine/<source>`; a clock row, if the source has a clock | nothing has landed, and no clock row is due |
| `run_stream` | new bronze rows through the fold into `tables/<stream>` | bronze has nothing new |
| `publish` | an event of the stream's Asset, with the rows written and `until` | `run_stream` was |

Streams that share a source take turns to ingest it; the first takes in everything, the
others find nothing left to do and go on. The pools (one slot each) see to that.

When it is red: the task log has the job's error; `ops/runs` has every run with its counts.
Retrying or clearing the failed task continues where it stopped.
"""

import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from include.pools import source_pool, stream_pool
from include.spark_conf import job_conf
from include.spark_submit import SPARK_SUBMIT, jars_argument, job_environment, job_path
from include.streams import STREAMS, Stream, default_lake, source_named

log = logging.getLogger(__name__)

# Empty for a manual run without a logical date, which has no data interval.
INTERVAL_END = "{{ dag_run.data_interval_end or '' }}"

# Reading the lake needs pyarrow and delta-rs, a second of imports: only in the functions
# that tasks run, not at every parse of this file.


def before_ingest(context: Any, lake: str, stream: Stream) -> None:
    """Refuse a backfill; skip when no file waits in landing and no clock row is due."""
    from include.clock import why_not_ingest
    from include.lake import open_lake

    refuse_backfill(context, stream)
    interval_end = context["dag_run"].data_interval_end
    source = source_named(stream.source)
    if reason := why_not_ingest(open_lake(lake), source, interval_end, datetime.now(UTC)):
        skip(reason)


def before_run_stream(context: Any, lake: str, stream: Stream) -> None:
    """Refuse a backfill; skip when bronze has nothing that the stream has not read."""
    from include.lake import open_lake
    from include.stream_position import has_waiting_rows

    refuse_backfill(context, stream)
    if not has_waiting_rows(open_lake(lake), stream):
        skip(f"{stream.name} has read all of bronze/{stream.source}")


def skip(reason: str) -> NoReturn:
    """Airflow says only that a task was skipped, not why."""
    log.info("skipped: %s", reason)
    raise AirflowSkipException(reason)


def refuse_backfill(context: Any, stream: Stream) -> None:
    """A backfill run would only drain the live stream, and look as if it had recomputed."""
    if context["dag_run"].run_type == "backfill":
        raise AirflowFailException(
            f"backfill of keyed state is not there yet: {stream.name} cannot recompute one "
            "interval. Nothing was changed"
        )


def table_asset(stream: Stream, lake: str) -> Asset:
    uri = f"{lake}/tables/{stream.name}"
    return Asset(name=stream.name, uri=uri if "://" in uri else Path(uri).as_uri())


def spark_task(job: str, args: list[str], stream: Stream | None, **options: Any) -> Any:
    """A task that runs a Spark job just as `make stream` would."""
    return SparkSubmitOperator(
        conn_id="spark_default",
        # On the operator: a connection may only name three binaries.
        spark_binary=str(SPARK_SUBMIT),
        application=str(job_path(job)),
        application_args=[*args, "--dag-run-id", "{{ dag_run.run_id }}"],
        jars=jars_argument(),
        conf=job_conf(stream),
        env_vars=job_environment(),
        retries=2,
        # What a retry heals (a lease still held, a file being replaced) heals soon.
        retry_delay=timedelta(seconds=30),
        **options,
    )


def stream_dag(stream: Stream) -> DAG:
    lake = default_lake()
    table = table_asset(stream, lake)
    with DAG(
        dag_id=f"stream_{stream.name}",
        description=f"{stream.source} -> tables/{stream.name}",
        doc_md=__doc__,
        # Not the bare cron string: its runs have empty data intervals.
        schedule=CronDataIntervalTimetable(stream.schedule, timezone="UTC"),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,  # one run reads all that is new
        max_active_runs=1,
        default_args={"owner": "data-platform", "execution_timeout": stream.timeout},
        tags=["stream", stream.source],
    ) as dag:
        ingest = spark_task(
            "ingest_source",
            ["--source", stream.source, "--lake", lake, "--interval-end", INTERVAL_END],
            None,
            task_id="ingest",
            name=f"ingest_{stream.source}",
            pool=source_pool(stream),
            pre_execute=partial(before_ingest, lake=lake, stream=stream),
        )
        run_stream = spark_task(
            "run_stream",
            ["--stream", stream.name, "--lake", lake],
            stream,
            task_id="run_stream",
            name=stream.name,
            pool=stream_pool(stream),
            pre_execute=partial(before_run_stream, lake=lake, stream=stream),
            # A skipped ingest does not mean that the stream has read everything.
            trigger_rule="none_failed",
        )

        @task(pool=stream_pool(stream), outlets=[table], retries=2)
        def publish(outlet_events: Any) -> None:
            from include.lake import open_lake
            from include.stream_result import asset_extra

            outlet_events[table].extra = asset_extra(open_lake(lake), stream.name)

        ingest >> run_stream >> publish()
    return dag


for stream in STREAMS:
    globals()[f"stream_{stream.name}"] = stream_dag(stream)
