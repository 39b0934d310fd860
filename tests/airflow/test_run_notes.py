"""The plugin that writes notes, as Airflow loads it from its folder and calls it."""

import pytest

from tests.airflow_runs import run_script

DAG = """
from airflow.sdk import DAG, task

with DAG("stream_any"):
    @task
    def publish(ti):
        ti.xcom_push(key="note", value="Backfill: 3 rows became 4")
    publish()
"""
# A run of it; then what the scheduler does as it ends, after a person's note, or none.
END_RUN = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.listeners.listener import get_listener_manager
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import select

DagBag(sys.argv[1]).dags["stream_any"].test()
hooks = get_listener_manager().hook
notes = []
for kind, before, hook in (
    ("scheduled", None, hooks.on_dag_run_success),
    ("backfill", None, hooks.on_dag_run_success),
    ("backfill", "Backfill: an older one", hooks.on_dag_run_failed),
    ("backfill", "ask Ann first", hooks.on_dag_run_success),
):
    with create_session() as session:
        run = session.scalars(select(DagRun)).one()
        run.run_type, run.note = kind, before
        session.flush()
        hook(dag_run=run, msg="ended")
    with create_session() as session:
        notes.append(session.scalars(select(DagRun)).one().note)
print("RESULT", json.dumps(notes))
"""


@pytest.mark.airflow
def test_a_backfills_run_that_ends_has_what_it_came_to_as_its_note(tmp_path, plugins_environment):
    file = tmp_path / "dags" / "any.py"
    file.write_text(DAG)
    ours = "Backfill: 3 rows became 4"
    notes = run_script(END_RUN, [str(file)], plugins_environment)
    assert notes == [None, ours, ours, "ask Ann first"]
