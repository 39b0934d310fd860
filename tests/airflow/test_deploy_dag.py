"""The Dag of a deploy: what it shows to a person, and that what was approved is applied, in the order of the graph."""

import json
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from include.airflow.assets import is_ours, stream_pool
from include.lake.generations import read_generations
from include.registry import all_streams
from include.settings import is_approval_needed
from include.steps import Start
from include.stream import deploy_plan
from include.stream.approvals import read_approval
from include.stream.rebuild_plan import RebuildOptions
from include.streams import user_counts
from spark_jobs import rebuild_stream
from tests.dags import bring_late_row, job_of, load_dags

FILE = "dags/deploy.py"
NAME = "user_counts"
APPLY = {f"apply_{stream.name}" for stream in all_streams()}
NOTHING = {"only": "all streams", "forward": []}


@pytest.fixture
def dag(lake):
    return load_dags(lake.root, FILE)["deploy"]


def test_a_person_stands_before_all_rebuilds_and_a_parent_before_its_child(dag):
    edges = {task.task_id: set(task.downstream_task_ids) for task in dag.tasks}
    assert edges == {
        "plan": {"approve"},
        "approve": {"choose_streams"},
        "choose_streams": APPLY,
        **{name: set() for name in APPLY},
        "apply_user_sessions": {"apply_session_streaks"},
        "apply_session_streaks": {"apply_streak_alerts"},
    }
    assert (dag.schedule, dag.get_task("approve").defaults) == (None, ["Reject"])
    for stream in all_streams():
        applies = dag.get_task(f"apply_{stream.name}")
        # A parent that is right is skipped; one that is red stops its child.
        assert applies.trigger_rule == "none_failed_min_one_success"
        assert applies.pool == stream_pool(stream)
        assert is_ours(applies.pool)


def test_what_a_person_enters_is_checked_before_anything_runs(dag):
    def entered(**params: object) -> dict:
        asked = deepcopy(dag.params)
        asked.update(params)
        return asked.validate()

    given = {"only": "user_sessions+", "forward": [NAME]}
    assert (entered(), entered(**given)) == (NOTHING, given)
    for wrong in ({"only": f"{NAME}+"}, {"forward": ["unknown"]}, {"forward": NAME}):
        with pytest.raises(ParamValidationError):
            entered(**wrong)


class Deploy:
    """The tasks of one Dag run, as Airflow runs them."""

    def __init__(self, dag: Any, **params: object) -> None:
        self.dag, self.params = dag, NOTHING | params
        self.ti = Mock(xcom_pull=lambda _: self.planned)
        self.planned = self._call("plan")

    def _call(self, name: str, **given: object) -> Any:
        task = self.dag.get_task(name)
        return task.python_callable(*task.op_args, **task.op_kwargs, params=self.params, **given)

    def choose(self) -> list[str]:
        return self._call("choose_streams", ti=self.ti)

    def start(self, name: str = NAME) -> Start:
        return job_of(self.dag.get_task(f"apply_{name}"), {"params": self.params, "ti": self.ti})


def test_the_plan_is_a_table_for_a_person_to_read_and_changes_nothing(lake, dag):
    bring_late_row(lake)
    shown = Deploy(dag, only=NAME).planned
    assert f"\n| {NAME} |" in shown["text"]
    assert shown["id"] in shown["text"]
    assert read_generations(lake, NAME).current is None
    assert read_approval(lake, shown["id"]) is None


def test_what_was_approved_is_rebuilt_with_its_options_and_nothing_else_is(lake, dag, monkeypatch):
    bring_late_row(lake)
    deploy = Deploy(dag, only=NAME)
    with pytest.raises(AirflowFailException):  # nobody has approved it
        deploy.start()
    assert deploy.choose() == deploy.choose() == [f"apply_{NAME}"]
    assert list(read_approval(lake, deploy.planned["id"]).values()) == [1]
    applies = dag.get_task(f"apply_{NAME}")
    arguments = rebuild_stream.parse_args(deploy.start().arguments)
    assert (applies.job, arguments.stream) == ("rebuild_stream", NAME)
    assert RebuildOptions.of(json.loads(arguments.options)) == RebuildOptions()
    with applies._starting({"params": deploy.params, "ti": deploy.ti}):
        assert is_approval_needed()  # by the job, too: the folder may change until it starts
    assert not is_approval_needed()
    monkeypatch.setattr(
        user_counts, "STREAM", replace(user_counts.STREAM, watermark_delay=timedelta(hours=1))
    )
    for refused in (deploy.start, deploy.choose):
        with pytest.raises(AirflowFailException):
            refused()
    monkeypatch.setattr(deploy_plan, "step_left", lambda *_, **__: None)
    assert deploy.start().is_done  # it is right by now
