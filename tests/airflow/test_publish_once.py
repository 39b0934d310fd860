"""What `publish` tells of a Dag run that is cleared, and has done something before: all of it again."""

from datetime import timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from airflow.sdk.api.datamodels._generated import DagRun
from airflow.sdk.exceptions import AirflowSkipException

from include.lake.ops import append_ops
from tests.dags import LATER, load_dags

HOUR = timedelta(hours=1)
STREAM = "user_sessions"
COUNTS = {"rows_read": 9, "rows_before": 30, "rows_after": 32}


class Publisher:
    """The task `publish`, as Airflow runs it."""

    def __init__(self, lake) -> None:
        self.lake = lake
        self.task = load_dags(lake.root)[f"stream_{STREAM}"].get_task("publish")

    def run(self, dag_run_id: str, run_type: str = "scheduled", **states):
        """The event, None where it is skipped."""
        (asset,) = self.task.outlets
        events = {asset: SimpleNamespace(extra=None)}
        ti = Mock(dag_id=f"stream_{STREAM}", get_task_states=lambda **_: {dag_run_id: states})
        dag_run = DagRun.model_construct(
            run_id=dag_run_id, run_type=run_type, logical_date=LATER - HOUR
        )
        try:
            self.task.python_callable(outlet_events=events, dag_run=dag_run, ti=ti)
        except AirflowSkipException:
            return None
        finally:
            done = states.get("restate_interval") == "success"
            assert ti.xcom_push.called == (done and run_type == "backfill")
        return events[asset].extra

    def drained(self, run_id: str, dag_run_id: str, hours: int, rows: int, **others) -> None:
        at = LATER + hours * HOUR
        row = {"run_id": run_id, "job": "run_stream", "subject": STREAM, "dag_run_id": dag_run_id}
        row |= {"started_at": at, "ended_at": at, "until": at, "outcome": "succeeded"}
        append_ops(self.lake, "runs", [row | {"rows_out": rows} | others])

    def replaced(self, run_id: str, hours: int, job: str = "restate_interval", **others) -> None:
        row = {"subject": STREAM, "dag_run_id": "scheduled__1", "run_id": run_id, "job": job}
        row |= {"start": LATER - HOUR, "until": LATER}
        row |= dict.fromkeys(("started_at", "ended_at"), LATER + hours * HOUR)
        names = {"rows_read": "rows_in", "rows_after": "rows_out"}
        others = {names.get(name, name): value for name, value in others.items()}
        append_ops(self.lake, "runs", [row | {"outcome": "succeeded"} | others])


@pytest.fixture
def publisher(lake):
    return Publisher(lake)


def test_a_run_that_was_cleared_tells_of_what_it_has_done_since_too(publisher):
    publisher.drained("r1", "d1", hours=0, rows=5)
    assert publisher.run("d1", run_stream="success")["rows"] == 5
    publisher.drained("r2", "d1", hours=1, rows=2)
    again = publisher.run("d1", run_stream="success")
    assert (again["run_id"], again["rows"]) == ("r2", 7)


def test_a_run_that_failed_this_time_tells_nothing_of_the_time_before(publisher):
    publisher.drained("r1", "d1", hours=0, rows=5)
    publisher.drained("r2", "d1", hours=1, rows=0, outcome="failed", error="x")
    assert publisher.run("d1", run_stream="failed") is None
    assert publisher.run("d1", run_stream="success")["rows"] == 5


def test_a_repeated_backfill_whose_restate_failed_tells_of_no_restate(publisher):
    """All Runs keeps the run id, under which last week's restate is recorded."""
    publisher.replaced("last_week", hours=0, **COUNTS)
    assert publisher.run("scheduled__1", "backfill", restate_interval="failed") is None


def test_a_repeated_backfill_tells_of_its_newest_restate_and_of_what_rebuilt_it(publisher):
    publisher.replaced("r1", hours=0, **COUNTS)
    backfill = {"run_type": "backfill", "restate_interval": "success"}
    assert publisher.run("scheduled__1", **backfill)["run_id"] == "r1"
    # Its `rebuild` had failed, and was cleared.
    publisher.replaced("r2", hours=1, job="rebuild_stream", generation=7)
    rebuilt = publisher.run("scheduled__1", **backfill)
    assert (rebuilt["run_id"], rebuilt["rebuilt_generation"]) == ("r1", 7)
