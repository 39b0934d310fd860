"""What `publish` tells of the tasks of its Dag run that failed."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from airflow.sdk.api.datamodels._generated import DagRun
from airflow.sdk.exceptions import AirflowSkipException

from include.lake.ops import read_ops
from tests.dags import load_dags


def told(lake, run_type: str = "scheduled", **states: str) -> list[tuple[str, str]]:
    """What a Dag run, which found nothing new, records when its tasks are in these `states`."""
    publish = load_dags(lake.root)["stream_user_counts"].get_task("publish")
    run_id = f"d{read_ops(lake, 'alerts').num_rows}"
    ti = SimpleNamespace(
        dag_id="stream_user_counts", get_task_states=lambda dag_id, run_ids: {run_id: states}
    )
    dag_run = DagRun.model_construct(run_id=run_id, run_type=run_type)
    with pytest.raises(AirflowSkipException):
        publish.python_callable(outlet_events=Mock(), dag_run=dag_run, ti=ti)
    rows = read_ops(lake, "alerts", {"dag_run_id": run_id}).to_pylist()
    return [(row["change"], row["detail"]) for row in rows if row["finding"] == "run_failed"]


def test_a_task_that_failed_is_told_once_and_that_it_is_over(lake):
    failed = {"run_stream": "failed", "check_checkpoint": "upstream_failed"}
    assert told(lake, "backfill", **failed) == []
    assert told(lake, **failed) == [("opened", "failed: run_stream")]
    ((change, _),) = told(lake, run_stream="success")
    assert change == "closed"
    assert told(lake, run_stream="success") == []
