"""Airflow plugin: pools of streams and sources, notes of backfill runs, the pages of streams.

A task whose pool does not exist waits for ever, and only the scheduler's log says so. So a pool is
made when a Dag run begins that needs it.

Airflow 3.3 lets no task write a note. So the task `publish` leaves it as an XCom, and the scheduler
puts it where people look: the grid, the run, *Backfills*.

Functions import what they need: every process of Airflow loads this file, and those that it forks
must not get modules as they were when it started.
"""

from functools import cache
from typing import Any

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

DESCRIPTION = "One writer at a time (include/airflow/assets.py)"


class OfDagRuns:
    """Airflow's listener, called in the scheduler's transaction that starts or ends a run."""

    @hookimpl
    def on_dag_run_running(self, dag_run: Any, msg: str) -> None:
        make_missing_pools(dag_run)

    @hookimpl
    def on_dag_run_success(self, dag_run: Any, msg: str) -> None:
        write_note(dag_run)

    @hookimpl
    def on_dag_run_failed(self, dag_run: Any, msg: str) -> None:
        write_note(dag_run)  # a failed run may have restated its interval


def make_missing_pools(dag_run: Any) -> None:
    """Make the pools of ours that the run's tasks name and that do not exist."""
    from airflow.models.pool import Pool
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.sqlalchemy import build_upsert_stmt, get_dialect_name
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    from include.airflow.assets import is_ours

    session: Any = object_session(dag_run)
    of_tasks = select(TaskInstance.pool).where(
        TaskInstance.dag_id == dag_run.dag_id,
        TaskInstance.run_id == dag_run.run_id,
        TaskInstance.pool.not_in(select(Pool.pool)),
    )
    for name in sorted(filter(is_ours, session.scalars(of_tasks.distinct()))):
        row = {"pool": name, "slots": 1, "description": DESCRIPTION, "include_deferred": False}
        # In one statement, as another scheduler may make it now: an error would end this one.
        dialect = get_dialect_name(session)
        session.execute(build_upsert_stmt(dialect, Pool, ["pool"], row, {"pool": name}))


def write_note(dag_run: Any) -> None:
    """Write the note of a backfill run, unless a person has written one."""
    from airflow.models.xcom import XComModel
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    from include.airflow.dag_run import KEY, OURS, TASK

    if dag_run.run_type != "backfill" or not dag_run.dag_id.startswith("stream_"):
        return
    of_run = select(XComModel).where(
        XComModel.dag_id == dag_run.dag_id,
        XComModel.run_id == dag_run.run_id,
        XComModel.task_id == TASK,
        XComModel.key == KEY,
    )
    session: Any = object_session(dag_run)
    left = session.scalars(of_run).first()
    if left is not None and (not dag_run.note or dag_run.note.startswith(OURS)):
        dag_run.note = XComModel.deserialize_value(left)


@cache
def _pages() -> Any:
    from include.airflow.state_page import state_app

    return state_app()


async def state(scope: Any, receive: Any, send: Any) -> None:
    """The ASGI app of the pages, made at the first request."""
    await _pages()(scope, receive, send)


def view(name: str, href: str, destination: str, **more: str) -> dict[str, str]:
    route = name.lower()
    return {"name": name, "href": href, "destination": destination, "url_route": route, **more}


class StatefulLake(AirflowPlugin):
    """The plugin, found by Airflow in its plugins folder."""

    name = "stateful_lake"
    listeners: list[object] = [OfDagRuns()]  # noqa: RUF012 (a list, as Airflow declares it)
    fastapi_apps: list[Any] = [{"name": "State", "app": state, "url_prefix": "/state"}]  # noqa: RUF012
    # Below the path that Airflow is served under, as hrefs without a slash are.
    external_views: list[Any] = [  # noqa: RUF012
        view("Streams", "state/", "nav", category="browse"),
        view("State", "state/dags/{DAG_ID}", "dag"),
    ]
