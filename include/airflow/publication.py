"""What the event of a stream's Asset tells of a Dag run, and that it is told once.

A Dag run that is cleared keeps its id, and what it did before is recorded under that. Airflow imports
this at each parse of the Dags: what reads a lake is imported by the functions.
"""

from collections.abc import Mapping
from typing import Any

from include.airflow.dag_run import is_backfill
from include.settings import Stream


def news(
    lake: str, stream: Stream, dag_run: Any, states: Mapping[str, str | None]
) -> dict[str, Any] | None:
    """What this Dag run, whose tasks are in these `states`, has to tell; None if there is nothing new.

    Nor when its job has failed: what was done before that is told once it is mended.
    """
    from include.lake.paths import open_lake
    from include.lake.stream_result import asset_extra, recompute_extra, untold

    opened, is_of_interval = open_lake(lake), is_backfill(dag_run)
    if states.get("recompute_interval" if is_of_interval else "run_stream") == "failed":
        return None
    if is_of_interval:
        return recompute_extra(opened, stream.name, dag_run.run_id)
    runs = untold(opened, "runs", stream.name, dag_run.run_id)
    return asset_extra(opened, stream.name, runs) if runs else None


def record_told(context: Any, lake: str, stream: Stream) -> None:
    """Once Airflow has the event: a retry of `publish` before that tells all of it again."""
    from include.lake.paths import open_lake
    from include.lake.stream_result import mark_told

    dag_run = context["dag_run"]
    name = "intervals" if is_backfill(dag_run) else "runs"
    mark_told(open_lake(lake), name, stream.name, dag_run.run_id)
