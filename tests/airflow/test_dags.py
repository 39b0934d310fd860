"""The Dags as Airflow would run them: ids, order, templates, arguments, skips, and the Asset."""

import importlib
import importlib.util
import sys
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import pytest
from airflow.sdk import CronDataIntervalTimetable
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.serialization.serialized_objects import DagSerialization

from dags.spark_task import SparkJobOperator
from include.airflow.assets import is_ours
from include.fold.admission import parse_instant
from include.ingest import ingest
from include.job import job_parser
from include.lake.ops import append_ops
from include.observe.asset_event import asset_extra
from include.registry import all_sources, all_streams, source_named, stream_named
from include.steps import Start
from include.stream import restate_plan
from include.streams import sources, user_counts
from include.streams.user_counts import FOLD, UserEvent
from tests.bronze import append_commit, stamp
from tests.dags import LATER, PARAMS, RUN_ID, before, dag_run, job_of, land, load_dags
from tests.stream.entries import entry, record

# As a task sees them: a scheduled, a manual, a manual without logical date, a backfill run.
RUNS = {
    "scheduled": ("scheduled__2026-03-01T05:00:00+00:00", LATER),
    "manual": ("manual__2026-03-01T05:17:00+00:00", LATER),
    "manual without logical date": ("manual__2026-03-01T05:17:00+00:00_x1", None),
    "backfill": ("backfill__2026-03-01T05:00:00+00:00", LATER),
}
BEHIND = {"stream_session_streaks": 5, "stream_streak_alerts": 10}


@pytest.fixture(scope="module")
def dags(tmp_path_factory):
    """The Dags of the streams; table_maintenance has tests of its own."""
    return load_dags(str(tmp_path_factory.mktemp("lake")))


def spark_tasks(dags):
    tasks = [task for dag in dags.values() for task in dag.tasks]
    return [task for task in tasks if isinstance(task, SparkJobOperator)]


def test_these_dags_and_no_others(dags, tmp_path):
    # By name: an empty bag also has no import errors.
    assert "stream_user_counts" in dags
    assert set(dags) == {f"stream_{stream.name}" for stream in all_streams()}
    assert set(load_dags(str(tmp_path), "dags")) == {*dags, "table_maintenance", "deploy"}


def test_a_stream_is_ingested_run_maintained_and_published(dags):
    for stream in all_streams():
        dag = dags[f"stream_{stream.name}"]
        edges = {task.task_id: set(task.downstream_task_ids) for task in dag.tasks}
        assert edges == {
            "ingest": {"run_stream", "restate_interval"},
            "run_stream": {"check_checkpoint"},
            "check_checkpoint": {"compact_state", "tune_rocksdb"},
            "compact_state": {"tune_rocksdb", "publish"},
            "restate_interval": {"rebuild", "tune_rocksdb"},
            "rebuild": {"check_checkpoint", "tune_rocksdb", "publish"},
            "tune_rocksdb": set(),
            "publish": {"alert"},
            "alert": set(),
        }


def test_runs_and_writers_come_one_at_a_time_and_end_in_time(dags):
    for stream in all_streams():
        dag = dags[f"stream_{stream.name}"]
        assert (dag.max_active_runs, dag.catchup) == (1, False)
        # Not the bare cron string, whose intervals are empty.
        cron = getattr(dag.timetable, "timetable", dag.timetable)  # a child's has an Asset, too
        assert cron == CronDataIntervalTimetable(stream.schedule, timezone="UTC")
        pools_of_tasks = {task.task_id: (task.pool, task.pool_slots) for task in dag.tasks}
        assert pools_of_tasks.pop("ingest") == (f"source_{stream.source}", 1)
        assert set(pools_of_tasks.values()) == {(f"stream_{stream.name}", 1)}
        assert all(is_ours(task.pool) for task in dag.tasks)
        assert {task.execution_timeout for task in dag.tasks} == {stream.timeout}


@pytest.mark.parametrize("kind", RUNS)
def test_every_job_accepts_its_arguments(kind, lake, lake_dags, monkeypatch):
    monkeypatch.setattr(restate_plan, "has_nothing_to_change", lambda *_, **__: False)
    run_id, logical_date = RUNS[kind]
    # Airflow's own class. The next tick of all schedules is LATER, or some minutes behind it.
    start = logical_date and logical_date - timedelta(minutes=15)
    interval = {"data_interval_start": start, "logical_date": start}
    run = dag_run(kind.split()[0], logical_date, run_id=run_id, **interval)
    tasks = spark_tasks(lake_dags)
    assert len(tasks) == 5 * len(all_streams())
    for task in tasks:
        if task.task_id == "restate_interval" and kind != "backfill":
            continue
        nothing = Mock(get_dr_count=lambda **_: 0, get_ti_count=lambda **_: 0)
        context = {"dag_run": run, "params": PARAMS, "dag": task.dag, "ti": nothing}
        args = parser_of(task)(job_of(task, context).arguments)
        assert args.lake == lake.root
        minute = BEHIND.get(task.dag.dag_id, 0) if kind == "backfill" else 0
        until = logical_date and logical_date + timedelta(minutes=minute)
        if task.task_id == "ingest":
            end = args.interval_end and parse_instant("--interval-end", args.interval_end)
            assert (end or None) == until
        if task.task_id == "restate_interval":
            assert parse_instant("--from", args.start) == start
            assert parse_instant("--until", args.until) == until


def parser_of(task):
    """The parser of the job's command line; ingestion has one for both its ways, with a JVM and without."""
    if task.task_id == "ingest":
        return ingest.parse_args
    module = importlib.import_module(f"spark_jobs.{task.job}")
    plain = job_parser(module.__doc__, "stream").parse_args
    return getattr(module, "parse_args", plain)


# The skips, without Airflow's database.


def test_little_is_ingested_without_a_jvm_and_much_on_spark(lake, lake_dags, monkeypatch):
    land(lake, "{}")
    here = (sys.executable, "-m", "include.ingest.ingest")
    assert tuple(started(lake_dags, "ingest").command) == here
    others = [each for each in all_sources() if each.name != "user_events"]
    much = replace(source_named("user_events"), spark_bytes=0)
    monkeypatch.setattr(sources, "SOURCES", (much, *others))
    assert not started(lake_dags, "ingest").command


def started(dags, task_id: str, is_due=lambda dag_id: False, has_run=()) -> Start:
    """The start of the task's job, while other Dags have a run of the same id (`is_due`), or have ended it."""
    task, ti = dags["stream_user_counts"].get_task(task_id), Mock()
    ti.get_dr_count = lambda dag_id, run_ids, states: int(is_due(dag_id))
    ti.get_ti_count = lambda dag_id, run_ids, task_ids, states: int(dag_id in has_run)
    context = {"dag_run": dag_run(), "params": PARAMS, "ti": ti}
    with task._starting(context) as start:
        return start


def test_a_small_run_takes_along_what_is_due_of_its_source(lake, lake_dags):
    append_commit(lake, "user_events", FOLD, stamp([[UserEvent("ann", 1)]])[0])
    assert started(lake_dags, "run_stream") == Start()
    start = started(lake_dags, "run_stream", lambda dag_id: dag_id != "stream_threshold_alerts")
    assert start == Start(arguments=["--also", "user_sessions"])
    assert started(lake_dags, "compact_state", lambda dag_id: True) == Start()
    # One that has run tells of nothing more.
    ended = "stream_threshold_alerts"
    assert started(lake_dags, "run_stream", lambda dag_id: True, has_run=[ended]) == start


def test_what_another_streams_run_has_done_is_done_and_followed_by_the_care(lake, lake_dags):
    with pytest.raises(AirflowSkipException):
        before(lake_dags, "run_stream")
    run = {"run_id": "r1", "job": "run_stream", "subject": "user_counts", "dag_run_id": RUN_ID}
    ended = {"started_at": LATER, "ended_at": LATER, "outcome": "succeeded"}
    append_ops(lake, "runs", [run | ended | {"rows_out": 7}])
    before(lake_dags, "run_stream")
    assert started(lake_dags, "run_stream") == Start(is_done=True)
    publish, messages = lake_dags["stream_user_counts"].get_task("publish"), defaultdict(Mock)
    publish.python_callable(outlet_events=messages, dag_run=dag_run(), ti=ti_of(), params=PARAMS)
    assert [event.extra["rows"] for event in messages.values()] == [7]
    # Not when there is more by now.
    append_commit(lake, "user_events", FOLD, stamp([[UserEvent("ann", 1)]])[0])
    assert started(lake_dags, "run_stream") == Start()


def test_where_there_is_nothing_to_do_steps_are_skipped_and_the_asset_with_them(lake_dags):
    for step in ("ingest", "run_stream", "compact_state"):
        with pytest.raises(AirflowSkipException):
            before(lake_dags, step)
    # What follows is skipped with it; `publish`, which runs whatever a check finds, skips itself.
    tasks = lake_dags["stream_user_counts"]
    rules = {task.task_id: task.trigger_rule.value for task in tasks.tasks}
    assert rules["rebuild"] == rules["compact_state"] == "all_success"
    assert rules["check_checkpoint"] == rules["tune_rocksdb"] == "none_failed_min_one_success"
    assert rules["publish"] == "all_done"
    for run_type in ("scheduled", "backfill"):
        context = {"dag_run": dag_run(run_type, run_id="r1"), "params": PARAMS, "ti": ti_of("r1")}
        with pytest.raises(AirflowSkipException):
            tasks.get_task("publish").python_callable(outlet_events={}, **context)


def test_a_check_that_needs_a_person_fails_and_its_findings_are_published(lake, lake_dags):
    at = datetime(2026, 3, 1, tzinfo=UTC)
    run = {"run_id": "r1", "job": "run_stream", "subject": "user_counts", "dag_run_id": "d1"}
    run |= {"started_at": at, "ended_at": at, "outcome": "succeeded"}
    append_ops(lake, "runs", [run | {"rows_out": 1}])
    record(lake, entry(1, "live", None, None, batch_id=3, bronze_id=None))
    tasks = lake_dags["stream_user_counts"]
    with pytest.raises(AirflowFailException):
        tasks.get_task("check_checkpoint").python_callable(dag_run=dag_run(), params=PARAMS)
    (finding,) = asset_extra(lake, stream_named("user_counts"), "d1")["findings"]
    assert (finding["finding"], finding["severity"]) == ("checkpoint_of_other_times", "error")


# The Asset, and alerts.


def ti_of(run_id: str = RUN_ID, **states: str):
    """A task instance of a Dag run whose other tasks are in these states."""
    return Mock(dag_id="stream_user_counts", get_task_states=lambda **_: {run_id: states})


def test_a_promise_is_a_deadline_of_the_dag(lake, monkeypatch):
    promise = replace(user_counts.STREAM, fresh_within=timedelta(hours=3))
    monkeypatch.setattr(user_counts, "STREAM", promise)
    dags = load_dags(lake.root)
    assert not dags["stream_user_sessions"].deadline
    (deadline,) = dags["stream_user_counts"].deadline
    assert deadline.interval == timedelta(hours=2, minutes=50)
    assert deadline.callback.path == "include.airflow.alerts.deadline_missed"
    assert DagSerialization.to_dict(dags["stream_user_counts"])["dag"]["deadline"]
