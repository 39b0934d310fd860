"""A plugin of Airflow: the pools of streams and sources, made when a Dag run begins that needs them.

A task whose pool does not exist waits for ever, and only the scheduler's log says so. So a
stream file put beside the others needs no pool registered and no Airflow restarted.
"""

from typing import Any

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

DESCRIPTION = "One writer at a time (include/airflow/assets.py)"


class PoolMaker:
    """Airflow's listener: the scheduler calls it, in the transaction that starts the run.

    What Airflow and this project have is imported only then: tasks load this file, too, and the
    processes that Airflow forks must not be given modules as they were when it started.
    """

    @hookimpl
    def on_dag_run_running(self, dag_run: Any, msg: str) -> None:
        """Make the pools that this run's tasks name and that do not exist."""
        from sqlalchemy.orm import object_session

        session = object_session(dag_run)
        for name in missing_pools(dag_run, session):
            make_pool(name, session)


def missing_pools(dag_run: Any, session: Any) -> list[str]:
    """Of the run's tasks, those of ours; a pool that a person has made or changed stays so."""
    from airflow.models.pool import Pool
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import select

    from include.airflow.assets import is_ours

    of_tasks = select(TaskInstance.pool).where(
        TaskInstance.dag_id == dag_run.dag_id,
        TaskInstance.run_id == dag_run.run_id,
        TaskInstance.pool.not_in(select(Pool.pool)),
    )
    return sorted(filter(is_ours, session.scalars(of_tasks.distinct())))


def make_pool(name: str, session: Any) -> None:
    """In one statement, as another scheduler may make it now: an error would end this one."""
    from airflow.models.pool import Pool
    from airflow.utils.sqlalchemy import build_upsert_stmt, get_dialect_name

    row = {"pool": name, "slots": 1, "description": DESCRIPTION, "include_deferred": False}
    dialect = get_dialect_name(session)
    session.execute(build_upsert_stmt(dialect, Pool, ["pool"], row, {"pool": name}))


class StreamPools(AirflowPlugin):
    """What Airflow looks for in its plugins folder."""

    name = "stream_pools"
    listeners: list[object] = [PoolMaker()]  # noqa: RUF012 (a list, as Airflow declares it)
