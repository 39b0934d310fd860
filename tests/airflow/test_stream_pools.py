"""The plugin that makes pools, as Airflow loads it from its folder and calls it."""

import pytest

from include.airflow.assets import is_ours
from tests.airflow_runs import run_script

DAG = """
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


@pytest.mark.airflow
def test_a_run_that_begins_has_its_pools_made_with_one_slot_and_no_other(
    tmp_path, plugins_environment
):
    file = tmp_path / "dags" / "any.py"
    file.write_text(DAG)
    made = run_script(START_RUN, [str(file)], plugins_environment)
    made.pop("default_pool")
    assert made == {"source_new": 1, "stream_new": 1, "stream_widened": 3}


@pytest.mark.parametrize("name", ["default_pool", "streams", "stream_", "my_stream_x", "stream_X"])
def test_pools_named_otherwise_are_left_to_people(name):
    assert not is_ours(name)
