"""The task `alert` notifies of failed tasks of its Dag run, once, and stores that with the Asset."""

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.api.datamodels._generated import DagRun
from airflow.sdk.exceptions import AirflowSkipException

from include.streams import notify
from tests.dags import load_dags


class Stores(dict[Any, Any]):
    """Airflow's stores, by Asset; of each the methods that tasks call."""

    def __missing__(self, asset: Any) -> SimpleNamespace:
        retained: dict[str, Any] = {}
        self[asset] = SimpleNamespace(get=retained.get, set=retained.__setitem__)
        return self[asset]


@pytest.fixture
def told(lake, monkeypatch):
    """A function that returns the message of a Dag run whose tasks are in these `states`."""
    alert, stores, messages = (
        load_dags(lake.root)["stream_user_counts"].get_task("alert"),
        Stores(),
        [],
    )
    monkeypatch.setattr(notify, "NOTIFY", (lambda context: messages.append(context["alert"].text),))

    def tell(run_type: str = "scheduled", **states: str) -> str | None:
        ti = SimpleNamespace(
            dag_id="stream_user_counts", get_task_states=lambda dag_id, run_ids: {"d1": states}
        )
        dag_run = DagRun.model_construct(run_id="d1", run_type=run_type)
        before = len(messages)
        try:
            alert.python_callable(dag_run=dag_run, ti=ti, asset_state_store=stores)
        except AirflowSkipException:
            assert len(messages) == before
            return None
        (text,) = messages[before:]
        return text

    assert alert.trigger_rule == "none_failed"  # a red publish leaves it undone, so the run is red
    return tell


def test_a_task_that_failed_is_told_once_and_that_it_is_over(told):
    failed = {"run_stream": "failed", "check_checkpoint": "upstream_failed"}
    assert told("backfill", **failed) is None
    assert "failed: run_stream" in told(**failed)
    assert told(**failed) is None
    assert "over: run_failed" in told(run_stream="success")
    assert told(run_stream="success") is None
