"""The Dag of the tables' maintenance: its tasks, their pools, and that it starts nothing in vain."""

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import CronDataIntervalTimetable
from airflow.sdk.exceptions import AirflowSkipException
from deltalake import write_deltalake

from dags.spark_task import SparkJobOperator
from include.airflow.assets import is_ours
from include.fold.admission import micros_of
from include.lake.ops import append_ops, read_ops
from include.maintain.table_maintenance import maintained_tables
from include.registry import all_streams
from include.settings import TABLE_MAINTENANCE
from include.streams import notify
from spark_jobs import maintain_table
from tests.stream.entries import entry, record

ROOT = Path(__file__).resolve().parents[2]
MANY = TABLE_MAINTENANCE.min_small_files


@pytest.fixture
def dag(lake, monkeypatch):
    monkeypatch.setenv("LAKE", lake.root)
    bag = DagBag(ROOT / "dags" / "table_maintenance.py")
    assert bag.import_errors == {}
    return bag.dags["table_maintenance"]


def spark_tasks(dag):
    return [task for task in dag.tasks if isinstance(task, SparkJobOperator)]


def fill(path: str) -> None:
    for _ in range(MANY):
        write_deltalake(path, pa.table({"n": [1]}), mode="append")


def planned(dag) -> set[str]:
    """The tasks that the plan lets run, beside `alert`, which knows whether there is anything to tell."""
    task = dag.get_task("plan_tables")
    return set(task.python_callable(*task.op_args, **task.op_kwargs, ti=Mock())) - {"alert"}


def test_tasks_follow_the_plan_alone_and_have_the_pool_of_who_writes_their_tables(dag):
    pools = {f"maintain_source_{each.source}": f"source_{each.source}" for each in all_streams()}
    pools |= {f"maintain_stream_{each.name}": f"stream_{each.name}" for each in all_streams()}
    edges = {task.task_id: task.downstream_task_ids for task in dag.tasks}
    assert edges.pop("plan_tables") == edges.keys() == pools.keys() | {"maintain_ops", "alert"}
    assert set(map(frozenset, edges.values())) == {frozenset()}
    assert {task.task_id: task.pool for task in spark_tasks(dag)} == pools
    assert all(map(is_ours, pools.values()))


def test_it_runs_once_a_day_one_task_at_a_time(dag):
    assert dag.timetable == CronDataIntervalTimetable(TABLE_MAINTENANCE.schedule, timezone="UTC")
    assert (dag.max_active_runs, dag.max_active_tasks, dag.catchup) == (1, 1, False)
    assert {task.execution_timeout for task in dag.tasks} == {TABLE_MAINTENANCE.timeout}
    assert {task.retries for task in dag.tasks} == {2}


def test_every_table_that_spark_writes_is_maintained_once(dag, lake):
    tables = [
        table
        for task in spark_tasks(dag)
        for table in maintain_table.parse_args(task.arguments).tables
    ]
    assert sorted(tables) == sorted(table.name for table in maintained_tables(lake) if table.lease)


def test_only_the_tasks_of_tables_that_need_something_run(dag, lake):
    fill(lake.quarantine("signals"))
    assert planned(dag) == {"maintain_source_signals"}
    fill(lake.table("user_counts"))
    assert planned(dag) == {"maintain_source_signals", "maintain_stream_user_counts"}


def test_ops_tables_and_replaced_generations_are_maintained_without_a_jvm(dag, lake):
    task = dag.get_task("maintain_ops")
    for number in range(MANY):
        append_ops(lake, "runs", [{"run_id": f"r{number}"}])
    assert planned(dag) == {"maintain_ops"}
    task.python_callable(*task.op_args, **task.op_kwargs)
    assert planned(dag) == set()
    assert read_ops(lake, "runs").num_rows == MANY
    long_ago = datetime.now(UTC) - all_streams()[0].savepoints.keep_generations
    live = entry(1, "live", None, None, generation=2)
    record(lake, live, row={"switched_at_us": micros_of(long_ago)})
    checkpoints = [Path(lake.checkpoint("user_counts", number)) for number in (1, 2)]
    for checkpoint in checkpoints:
        checkpoint.mkdir(parents=True)
    assert planned(dag) == {"maintain_ops"}
    task.python_callable(*task.op_args, **task.op_kwargs)
    assert [checkpoint.exists() for checkpoint in checkpoints] == [False, True]


def test_a_finding_of_a_table_is_told_once_and_its_end_once(dag, lake, monkeypatch):
    log = Path(lake.bronze("signals"), "_delta_log")
    log.mkdir(parents=True)
    plan, task = dag.get_task("plan_tables"), dag.get_task("alert")
    retained: dict[str, Any] = {}
    store = SimpleNamespace(get=retained.get, set=retained.__setitem__)
    messages: list[str] = []
    monkeypatch.setattr(
        notify, "NOTIFY", (lambda context: messages.append(context["alert"].title),)
    )

    def look() -> None:
        ti = Mock()
        plan.python_callable(*plan.op_args, **plan.op_kwargs, ti=ti)
        (_, looks), _ = ti.xcom_push.call_args
        ti.xcom_pull.return_value = json.loads(json.dumps(looks))
        with suppress(AirflowSkipException):
            task.python_callable(ti=ti, asset_state_store=store)

    for _ in range(2):
        look()
    log.rmdir()
    look()  # that it is gone does not mend it
    write_deltalake(lake.bronze("signals"), pa.table({"n": [1]}))
    for _ in range(2):
        look()
    assert messages == [
        "table_maintenance: table_unreadable",
        "table_maintenance: over: table_unreadable",
    ]
