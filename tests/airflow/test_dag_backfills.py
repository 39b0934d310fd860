"""Backfill runs of the streams' Dags: what they do in place of an ordinary run, and that they rebuild."""

import json
from datetime import datetime, timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from airflow.sdk.api.datamodels._generated import DagRun, DagRunType
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from include.airflow.dag_run import run_note
from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.observe.asset_event import restate_extra
from include.registry import stream_named
from include.stream import restate_plan
from spark_jobs import restate_interval
from tests.dags import (
    LATER,
    before,
    dag_run,
    job_of,
    land,
    lived,
    raise_watermark,
    settle,
)
from tests.refused import commands_in

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("run_type", [kind.value for kind in DagRunType])
def test_a_backfill_run_restates_its_interval_and_no_other_does(run_type, lake, lake_dags):
    lived(lake)
    left_out = {"backfill": ("run_stream", "check_checkpoint", "compact_state", "tune_rocksdb")}
    for task_id in left_out.get(run_type, ("restate_interval", "rebuild")):
        with pytest.raises(AirflowSkipException):
            before(lake_dags, task_id, run_type)
    before(lake_dags, "restate_interval" if run_type == "backfill" else "run_stream", run_type)


def test_a_backfill_run_takes_in_what_has_landed(lake, lake_dags):
    with pytest.raises(AirflowSkipException):
        before(lake_dags, "ingest", run_type="backfill")
    land(lake, '{"user_id": "a"}')
    before(lake_dags, "ingest", run_type="backfill")


@pytest.mark.usefixtures("user_events_have_a_clock")
def test_an_old_interval_does_not_move_the_clock(lake, lake_dags):
    raise_watermark(lake, LATER)
    with pytest.raises(AirflowSkipException):
        before(lake_dags, "ingest", run_type="backfill", interval_end=LATER - timedelta(days=1))


def test_an_interval_is_restated_once_the_stream_has_complete_it(lake, lake_dags):
    with pytest.raises(AirflowFailException):
        before(lake_dags, "restate_interval", "backfill")
    settle(lake, LATER)
    before(lake_dags, "restate_interval", "backfill", LATER)
    later = LATER + timedelta(hours=1)
    # AirflowFailException: not retried. The text says when it can be.
    with pytest.raises(AirflowFailException):
        before(lake_dags, "restate_interval", "backfill", later)


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
    """What happens before the run of the hour before LATER would rebuild."""
    dag = dags["stream_user_counts"]
    context = {
        "dag": dag,
        "dag_run": dag_run(run_type),
        "ti": Runs(*queued),
        "params": {"rebuild": rebuild},
    }
    dag.get_task("rebuild")._pre_execute_hook(context)


def test_only_a_backfill_with_the_parameter_rebuilds(lake, lake_dags):
    lived(lake)
    before_rebuild(lake_dags)
    with pytest.raises(AirflowSkipException):
        before_rebuild(lake_dags, rebuild=False)
    with pytest.raises(AirflowSkipException):
        before_rebuild(lake_dags, run_type="scheduled")
    assert lake_dags["stream_user_counts"].params.dump() == {"rebuild": False}


def test_the_last_run_of_a_backfill_rebuilds(lake, lake_dags):
    lived(lake)
    settle(lake, LATER + HOUR)
    for queued in (LATER, LATER - 2 * HOUR):
        with pytest.raises(AirflowSkipException):
            before_rebuild(lake_dags, queued)
    # It runs itself; and what is not complete yet is a run of live, or one that will be refused.
    before_rebuild(lake_dags, LATER - HOUR, LATER + HOUR)


def record_restate(lake: Lake, at: datetime, **columns: object) -> None:
    interval = {"start": LATER - timedelta(hours=1), "until": LATER, "ended_at": at}
    names = {"rows_read": "rows_in", "rows_after": "rows_out"}
    columns = {names.get(name, name): value for name, value in columns.items()}
    row = {"job": "restate_interval", "subject": "user_counts", "dag_run_id": "d1"}
    append_ops(lake, "runs", [row | {"outcome": "succeeded"} | interval | columns])


def test_a_backfill_run_publishes_its_own_newest_restate(lake, lake_dags):
    # All Runs keeps the run id of a scheduled run, under which that run is recorded, too.
    run = {"run_id": "live", "job": "run_stream", "subject": "user_counts", "dag_run_id": "d1"}
    times = {"started_at": LATER, "ended_at": LATER}
    append_ops(lake, "runs", [run | times | {"outcome": "succeeded", "rows_out": 1}])
    counts = {"rows_read": 9, "rows_before": 3, "rows_after": 4}
    record_restate(lake, LATER + timedelta(hours=2), run_id="r2", savepoint_id="s2", **counts)
    record_restate(lake, LATER + timedelta(hours=1), run_id="r1")
    record_restate(lake, LATER + timedelta(hours=3), run_id="r3", dag_run_id="d2")
    record_restate(lake, LATER + timedelta(hours=3), run_id="r4", subject="user_sessions")

    publish = lake_dags["stream_user_counts"].get_task("publish")
    (asset,) = publish.outlets
    events = {asset: SimpleNamespace(extra=None)}
    backfill = DagRun.model_construct(run_id="d1", run_type="backfill", logical_date=LATER - HOUR)
    states = {"d1": {"restate_interval": "success"}}
    ti = Mock(dag_id="stream_user_counts", get_task_states=lambda **_: states)
    publish.python_callable(outlet_events=events, dag_run=backfill, ti=ti)
    interval = ["2026-03-01T04:00:00+00:00", "2026-03-01T05:00:00+00:00"]
    expected = {"run_id": "r2", "interval": interval, "savepoint": "s2"} | counts
    expected |= {"complete_until": None, "ended_at": (LATER + 2 * HOUR).isoformat()}
    assert events[asset].extra == expected
    (left,) = ti.xcom_push.call_args_list
    assert left.kwargs["key"] == "note"
    json.dumps(events[asset].extra)
    scheduled = DagRun.model_construct(run_id="d1", run_type="scheduled")
    publish.python_callable(outlet_events=events, dag_run=scheduled, ti=ti)
    assert events[asset].extra["run_id"] == "live"


SESSIONS, OF_UPDATE = (stream_named(name) for name in ("user_sessions", "user_counts"))
BACKFILL = dag_run("backfill")


def test_the_note_says_what_the_interval_became_and_what_is_left(lake):
    lived(lake)
    counts = {"rows_read": 1_900, "rows_before": 30, "rows_after": 32}
    record_restate(lake, LATER, **counts)
    extra = restate_extra(lake, stream_named("user_counts"), "d1")
    note = run_note(lake.root, SESSIONS, BACKFILL, extra=extra)
    figures = ("03-01 04:00", "03-01 05:00", " 30 ", " 32;", "1,900 ")
    assert [figure for figure in figures if figure not in note] == []
    note = run_note(lake.root, OF_UPDATE, BACKFILL, extra=extra | {"rebuilt_generation": 7})
    assert ("generation 7" in note, commands_in(note)) == (True, ["rebuild user_counts --apply"])


def test_a_run_that_changed_nothing_has_a_note_of_its_interval(lake):
    lived(lake)
    note = run_note(lake.root, SESSIONS, BACKFILL, extra=None)
    assert [time for time in ("03-01 04:00", "03-01 05:00") if time not in note] == []


def test_a_backfills_job_takes_the_next_intervals_along_that_wait_for_it(
    lake, lake_dags, monkeypatch
):
    """Of user_sessions, whose table is appended to: an hour each, by its schedule."""
    complete = LATER + 3 * HOUR
    monkeypatch.setattr(restate_plan, "complete_until", lambda *_: complete)
    task, ti = lake_dags["stream_user_sessions"].get_task("restate_interval"), Mock()
    begun: set[datetime] = set()
    ti.get_dr_count = lambda dag_id, logical_dates, states: int(not begun & set(logical_dates))
    context = {
        "dag": lake_dags["stream_user_sessions"],
        "dag_run": dag_run("backfill"),
        "params": {"rebuild": False},
        "ti": ti,
    }

    def until() -> datetime:
        args = restate_interval.parse_args(job_of(task, context).arguments)
        assert args.start == (LATER - HOUR).isoformat()
        return datetime.fromisoformat(args.until)

    assert until() == LATER + 3 * HOUR
    begun.add(LATER + HOUR)
    assert until() == LATER + HOUR
