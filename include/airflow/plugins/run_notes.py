"""A plugin of Airflow: what a backfill has come to, as the note of its Dag run.

Airflow 3.3 lets no task write a note. So the task `publish` leaves the text as an XCom, and the
scheduler, which calls this as the run ends, puts it where people look: the grid, the run, and the
runs of the *Backfills* tab.
"""

from typing import Any

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin


class NoteWriter:
    """Airflow's listener: called in the transaction that ends the run."""

    @hookimpl
    def on_dag_run_success(self, dag_run: Any, msg: str) -> None:
        """A green run."""
        note(dag_run)

    @hookimpl
    def on_dag_run_failed(self, dag_run: Any, msg: str) -> None:
        """A red one may have recomputed its interval all the same."""
        note(dag_run)


def note(dag_run: Any) -> None:
    """Write the run's note, if it has one to write; a person's is left as it is."""
    # Imported only now: tasks load this file, too (plugins/stream_pools.py).
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


class RunNotes(AirflowPlugin):
    """What Airflow looks for in its plugins folder."""

    name = "run_notes"
    listeners: list[object] = [NoteWriter()]  # noqa: RUF012 (a list, as Airflow declares it)
