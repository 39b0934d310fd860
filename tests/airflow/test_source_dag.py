"""The Dag of a source that has a schedule: it ingests, and is skipped when nothing has come."""

from dataclasses import replace

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from include.lake.paths import Lake
from include.registry import source_named
from include.steps import INGEST_HERE
from include.streams import sources
from tests.dags import dag_run, job_of, load_dags
from tests.landed_files import Landing, signal


def test_a_source_with_a_schedule_has_a_dag_without_any_stream(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    with_dag = replace(source_named("signals"), schedule="*/5 * * * *")
    monkeypatch.setattr(sources, "SOURCES", (with_dag, source_named("user_events")))
    dags = load_dags(lake.root, "dags/sources.py")
    assert list(dags) == ["ingest_signals"]
    (task,) = dags["ingest_signals"].tasks
    context = {"dag_run": dag_run()}
    with pytest.raises(AirflowSkipException):
        task._pre_execute_hook(context)
    Landing(lake).add("a.jsonl", [signal(0)])
    task._pre_execute_hook(context)
    start = job_of(task, context)
    assert start.command[1:] == ["-m", INGEST_HERE]
    assert start.arguments[:4] == ["--source", "signals", "--lake", lake.root]
