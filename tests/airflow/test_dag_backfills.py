"""Backfill runs of the streams' Dags: what they do in place of an ordinary run, and that they rebuild."""

from datetime import datetime, timedelta
from unittest.mock import Mock

import pytest
from airflow.sdk.api.datamodels._generated import DagRunType
from airflow.sdk.exceptions import AirflowSkipException

from include.stream import restate_plan
from spark_jobs import restate_interval
from tests.dags import (
    LATER,
    PARAMS,
    before,
    dag_run,
    job_of,
    land,
    lived,
    raise_watermark,
    settle,
)

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("run_type", [kind.value for kind in DagRunType])
def test_a_backfill_run_restates_its_interval_and_no_other_does(run_type, lake, lake_dags):
    lived(lake)
    left_out = {"backfill": ("run_stream", "check_checkpoint", "compact_state", "tune_rocksdb")}
    for task_id in left_out.get(run_type, ("restate_interval", "rebuild")):
        with pytest.raises(AirflowSkipException):
            before(lake_dags, task_id, run_type)
    before(lake_dags, "restate_interval" if run_type == "backfill" else "run_stream", run_type)


def test_a_backfill_run_takes_in_what_has_landed_as_any_other(lake, lake_dags):
    for run_type in ("backfill", "scheduled"):
        with pytest.raises(AirflowSkipException):
            before(lake_dags, "ingest", run_type)
    land(lake, '{"user_id": "a"}')
    for run_type in ("backfill", "scheduled"):
        before(lake_dags, "ingest", run_type)


@pytest.mark.usefixtures("user_events_have_a_clock")
def test_an_old_interval_does_not_move_the_clock(lake, lake_dags):
    raise_watermark(lake, LATER)
    with pytest.raises(AirflowSkipException):
        before(lake_dags, "ingest", run_type="backfill", interval_end=LATER - timedelta(days=1))


class Runs:
    """The Dag runs that Airflow knows, as a task asks for them."""

    def __init__(self, *queued: datetime) -> None:
        self._queued = set(queued)

    def get_dr_count(self, dag_id: str, logical_dates: list[datetime], states: list[str]) -> int:
        assert (dag_id, states) == ("stream_user_counts", ["queued"])
        assert logical_dates, "Airflow would count the runs of all dates"
        return len(self._queued & set(logical_dates))


def before_rebuild(
    dags, *queued: datetime, run_type: str = "backfill", rebuild: bool = True
) -> None:
    """Call the hook of the task `rebuild` in the run of the hour before LATER."""
    dag = dags["stream_user_counts"]
    context = {
        "dag": dag,
        "dag_run": dag_run(run_type),
        "ti": Runs(*queued),
        "params": PARAMS | {"rebuild": rebuild},
    }
    dag.get_task("rebuild")._pre_execute_hook(context)


def test_only_a_backfill_with_the_parameter_rebuilds(lake, lake_dags):
    lived(lake)
    before_rebuild(lake_dags)
    with pytest.raises(AirflowSkipException):
        before_rebuild(lake_dags, rebuild=False)
    with pytest.raises(AirflowSkipException):
        before_rebuild(lake_dags, run_type="scheduled")
    assert lake_dags["stream_user_counts"].params.dump() == PARAMS


def test_the_last_run_of_a_backfill_rebuilds(lake, lake_dags):
    lived(lake)
    settle(lake, LATER + HOUR)
    for queued in (LATER, LATER - 2 * HOUR):
        with pytest.raises(AirflowSkipException):
            before_rebuild(lake_dags, queued)
    # It runs itself; and what is not complete yet is a run of live, or one that will be refused.
    before_rebuild(lake_dags, LATER - HOUR, LATER + HOUR)


def test_a_backfills_job_takes_the_next_intervals_along_that_wait_for_it(
    lake, lake_dags, monkeypatch
):
    """The stream is user_sessions, an append table, with runs of an hour."""
    complete = LATER + 3 * HOUR
    monkeypatch.setattr(restate_plan, "complete_until", lambda *_: complete)
    task, ti = lake_dags["stream_user_sessions"].get_task("restate_interval"), Mock()
    begun: set[datetime] = set()
    monkeypatch.setattr(restate_plan, "plan_restate", lambda *_: Mock(estimated_seconds=None))

    def waiting(dag_id: str, task_ids: list[str], logical_dates: list[datetime], states: list[str]):
        assert "null" in states, "tasks of a run that waits"
        return int(not begun & set(logical_dates))

    ti.get_ti_count = waiting
    context = {
        "dag": lake_dags["stream_user_sessions"],
        "dag_run": dag_run("backfill"),
        "params": PARAMS,
        "ti": ti,
    }

    def until() -> datetime:
        args = restate_interval.parse_args(job_of(task, context).arguments)
        assert args.start == (LATER - HOUR).isoformat()
        return datetime.fromisoformat(args.until)

    assert until() == LATER + 3 * HOUR
    begun.add(LATER + HOUR)
    assert until() == LATER + HOUR
