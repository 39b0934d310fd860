"""Who tells of a task that failed when `publish` of its Dag run had looked: the next Dag run."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from airflow.sdk.api.datamodels._generated import DagRun
from airflow.sdk.exceptions import AirflowSkipException

from include.lake.ops import read_ops
from tests.dags import load_dags

ALL_WELL = {"run_stream": "success", "tune_rocksdb": "success", "publish": "success"}


class Runs:
    """Dag runs of the stream, one after the other, as `publish` of the newest asks for them."""

    def __init__(self, lake) -> None:
        self.lake = lake
        self.publish = load_dags(lake.root)["stream_user_counts"].get_task("publish")
        self.runs: list[DagRun] = []
        self.states: dict[str, dict[str, str]] = {}

    def run(self, run_type: str = "scheduled", **states: str) -> list[tuple[str, str]]:
        """What that run, which found nothing new, has recorded; its tasks come to these `states`."""
        dag_run = DagRun.model_construct(run_id=f"d{len(self.runs)}", run_type=run_type)
        previous = self.runs[-1] if self.runs else None
        self.states[dag_run.run_id] = {}
        ti = SimpleNamespace(
            dag_id="stream_user_counts",
            get_previous_dagrun=lambda: previous,
            get_task_states=lambda dag_id, run_ids: {run: self.states[run] for run in run_ids},
        )
        with pytest.raises(AirflowSkipException):
            self.publish.python_callable(outlet_events=Mock(), dag_run=dag_run, ti=ti)
        self.runs.append(dag_run)
        self.states[dag_run.run_id] = ALL_WELL | states
        rows = read_ops(self.lake, "alerts", {"dag_run_id": dag_run.run_id}).to_pylist()
        return [(row["change"], row["detail"]) for row in rows if row["finding"] == "run_failed"]


@pytest.mark.parametrize("task", ["tune_rocksdb", "publish", "alert"])
def test_the_next_run_tells_of_it_once_and_the_one_after_it_that_it_is_over(lake, task):
    runs = Runs(lake)
    assert runs.run(**{task: "failed"}) == []
    assert runs.run() == [("opened", f"failed: {task} of d0")]
    ((change, _),) = runs.run()
    assert change == "closed"
    assert runs.run() == []


def test_what_a_runs_own_publish_has_told_is_not_told_by_the_next(lake):
    runs = Runs(lake)
    runs.run(run_stream="failed", check_checkpoint="upstream_failed")
    assert runs.run() == []


def test_a_backfills_red_runs_are_in_the_grid_alone(lake):
    runs = Runs(lake)
    runs.run("backfill", publish="failed")
    assert runs.run() == []
