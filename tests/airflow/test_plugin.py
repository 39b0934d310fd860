"""Our plugin, as Airflow loads it from its folder and calls it; tests/airflow/test_state_page.py has its pages."""

import pytest

from tests.airflow_runs import run_script

pytestmark = pytest.mark.airflow
OF_NOTES = """
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


def test_a_backfills_run_that_ends_has_what_it_came_to_as_its_note(tmp_path, plugins_environment):
    file = tmp_path / "dags" / "any.py"
    file.write_text(OF_NOTES)
    ours = "Backfill: 3 rows became 4"
    notes = run_script(END_RUN, [str(file)], plugins_environment)
    assert notes == [None, ours, ours, "ask Ann first"]


OF_POOLS = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

with DAG("any"):
    for pool in ("source_new", "stream_new", "stream_widened", "pool_of_others"):
        EmptyOperator(task_id=pool, pool=pool)
"""
# A run of it; then what the scheduler does as it starts a run, twice.
START_RUN = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.listeners.listener import get_listener_manager
from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.utils.session import create_session
from airflow.utils.sqlalchemy import prohibit_commit
from sqlalchemy import select

DagBag(sys.argv[1]).dags["any"].test(mark_success_pattern=".*")
with create_session() as session:
    Pool.create_or_update_pool("stream_widened", 3, "by a person", False, session=session)
for _ in range(2):
    with create_session() as session, prohibit_commit(session) as guard:
        run = session.scalars(select(DagRun)).one()
        get_listener_manager().hook.on_dag_run_running(dag_run=run, msg="started")
        guard.commit()
with create_session() as session:
    pools = {pool.pool: pool.slots for pool in session.scalars(select(Pool))}
print("RESULT", json.dumps(pools))
"""


def test_a_run_that_begins_has_its_pools_made_with_one_slot_and_no_other(
    tmp_path, plugins_environment
):
    file = tmp_path / "dags" / "any.py"
    file.write_text(OF_POOLS)
    made = run_script(START_RUN, [str(file)], plugins_environment)
    made.pop("default_pool")
    assert made == {"source_new": 1, "stream_new": 1, "stream_widened": 3}
