"""The Dag of the recovery drills: its tasks, in which lake they work, and when they are skipped."""

from argparse import Namespace
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import CronTriggerTimetable
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from include.care import drill_result, recovery_drill
from include.care.last_drill import last_drill
from include.care.recovery_drill import Drill
from include.limits import DRILL_SCHEDULE
from include.registry import all_streams
from spark_jobs.reseed_stream import parse_args
from tests.airflow_runs import run_script
from tests.care.drills import commands_on, hashes
from tests.faults.lakes import STREAMS, Story, registered

ROOT = Path(__file__).resolve().parents[2]
NAMES = [stream.name for stream in all_streams()]
RUN = Namespace(run_id="manual__1")
DRILL = Drill("user_counts", 0, 1_750_032_000_000_000, "a-savepoint", 3)


@pytest.fixture
def dag(lake, monkeypatch):
    monkeypatch.setenv("LAKE", f"{lake.root}/")
    bag = DagBag(ROOT / "dags" / "recovery_drill.py")
    assert bag.import_errors == {}
    return bag.dags["recovery_drill"]


def called(dag, name: str, **context):
    task = dag.get_task(name)
    return task.python_callable(*task.op_args, **task.op_kwargs, **context)


def test_each_stream_is_copied_restored_and_compared(dag):
    edges = {task.task_id: task.downstream_task_ids for task in dag.tasks}
    assert edges == {
        name: following
        for stream in NAMES
        for name, following in (
            (f"copy_{stream}", {f"restore_{stream}"}),
            (f"restore_{stream}", {f"compare_{stream}"}),
            (f"compare_{stream}", set()),
        )
    }


def test_it_runs_once_a_month_one_task_at_a_time(dag):
    assert dag.timetable == CronTriggerTimetable(DRILL_SCHEDULE, timezone="UTC")
    assert DRILL_SCHEDULE.split()[2:] == ["1", "*", "*"]
    assert (dag.max_active_runs, dag.max_active_tasks, dag.catchup) == (1, 1, False)


def test_no_run_of_the_stream_comes_between_what_is_copied(dag):
    assert {name: dag.get_task(f"copy_{name}").pool for name in NAMES} == {
        name: f"stream_{name}" for name in NAMES
    }


def test_a_restore_that_failed_is_compared_too_and_one_that_was_left_out_is_not(dag):
    assert {dag.get_task(f"compare_{name}").trigger_rule for name in NAMES} == {"none_skipped"}
    assert {dag.get_task(f"restore_{name}").trigger_rule for name in NAMES} == {"all_success"}


def test_the_job_works_in_the_copy_until_where_the_copy_says(dag, lake, monkeypatch):
    monkeypatch.setattr(recovery_drill, "begun_drill", lambda *_: DRILL)
    for name in NAMES:
        task = dag.get_task(f"restore_{name}")
        task._pre_execute_hook({"task": task})
        args = parse_args(task.application_args)
        assert args.lake == lake.drill(name) != lake.root
        assert args.stream == name
        assert args.until == "2025-06-16T00:00:00+00:00"
        assert (args.recompute, args.from_state) == (False, False)


def test_another_stream_than_the_one_that_was_asked_for_is_skipped(dag, monkeypatch):
    drilled = []
    monkeypatch.setattr(recovery_drill, "begin_drill", lambda _, *by: drilled.append(by) or DRILL)
    for asked in ("user_counts", None):
        called(dag, "copy_user_counts", params={"stream": asked}, dag_run=RUN)
    with pytest.raises(AirflowSkipException):
        called(dag, "copy_user_counts", params={"stream": "device_signals"}, dag_run=RUN)
    assert [(stream.name, run_id) for stream, run_id in drilled] == [
        ("user_counts", "manual__1")
    ] * 2


def test_a_stream_without_anything_to_compare_is_skipped(dag):
    with pytest.raises(AirflowSkipException):
        called(dag, "copy_user_counts", params={"stream": None}, dag_run=RUN)


def test_a_drill_that_shows_a_difference_is_red_for_good(dag, monkeypatch):
    def finish(*_):
        raise drill_result.DrillError("not equal")

    monkeypatch.setattr(drill_result, "finish_drill", finish)
    with pytest.raises(AirflowFailException, match="not equal"):
        called(dag, "compare_user_counts", dag_run=RUN)


RUN_DRILL = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
run = DagBag(sys.argv[1]).dags["recovery_drill"].test()
states = {ti.task_id: ti.state for ti in run.get_task_instances()}
print("RESULT", json.dumps(states | {"the run": run.state}))
"""


@pytest.mark.airflow
@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.full
def test_a_run_drills_the_stream_that_can_be_and_skips_the_others(spark, lake, airflow_environment):
    commands = commands_on(spark)
    story = Story(lake, STREAMS["device_signals"], 0)
    with registered(), commands.installed():
        for _ in range(2):
            story = story.land()
            assert commands.stateful(lake.root, "stream device_signals").code == 0
    before = hashes(lake)
    states = run_script(RUN_DRILL, [str(ROOT / "dags" / "recovery_drill.py")], airflow_environment)
    drill = last_drill(lake, "device_signals")
    assert (drill["is_equal"], drill["error"]) == (True, None)
    assert drill["rows_out"] > 0
    assert states == {"the run": "success"} | {
        f"{task}_{name}": "success" if name == "device_signals" else "skipped"
        for name in NAMES
        for task in ("copy", "restore", "compare")
    }
    assert hashes(lake) == before
