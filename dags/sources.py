"""One Dag for each source whose entry has a `schedule`. It ingests what has come, and does nothing else.

Use it for a source that no stream reads yet, or that should reach bronze before its streams run.
A run that finds nothing new is skipped without starting a JVM.
"""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable

from dags.spark_task import ingest_task
from include.registry import all_sources
from include.settings import Source, default_lake
from include.steps import SourceRun


def source_run(context: Any, lake: str, source: Source) -> SourceRun:
    """The run of the ingest step for this Dag run."""
    from include.lake.paths import open_lake

    return SourceRun(open_lake(lake), source, context["dag_run"].data_interval_end)


def source_dag(source: Source) -> DAG:
    lake = default_lake()
    with DAG(
        dag_id=f"ingest_{source.name}",
        description=f"landing/{source.name} -> bronze/{source.name}",
        doc_md=__doc__,
        schedule=CronDataIntervalTimetable(str(source.schedule), timezone="UTC"),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,  # one run takes in all that is new
        max_active_runs=1,
        default_args={"owner": "data-platform", "execution_timeout": timedelta(hours=6)},
        tags=["source", source.name],
    ) as dag:
        ingest_task(source, lake, run_of=partial(source_run, lake=lake, source=source))
    return dag


for source in all_sources():
    if source.schedule is not None:
        globals()[f"ingest_{source.name}"] = source_dag(source)
