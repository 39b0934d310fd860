"""The Assets of a stream's tasks, and the lake that they are given."""

from dataclasses import replace
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from include.airflow.assets import bronze_asset, source_assets, table_asset
from include.connectors import DeltaTable, KafkaTopic, StreamTable
from include.lake.paths import Lake
from include.registry import source_named, stream_named
from include.settings import Source, default_lake
from include.steps import INGEST_HERE
from include.streams import sources
from tests.dags import ROOT, dag_run, job_of, load_dags
from tests.landed_files import Landing, signal

STREAM, SOURCE = stream_named("user_counts"), source_named("user_events")


def test_edges_lead_from_the_source_over_bronze_to_the_table(lake):
    dag = load_dags(lake.root)["stream_user_counts"]
    ingest, publish = dag.get_task("ingest"), dag.get_task("publish")
    assert ingest.inlets == source_assets(SOURCE, lake.root)
    assert ingest.outlets == publish.inlets == [bronze_asset(SOURCE, lake.root)]
    assert publish.outlets == [table_asset(STREAM, lake.root)]
    others = [task for task in dag.tasks if task.task_id not in ("ingest", "publish", "alert")]
    assert not any(task.inlets or task.outlets for task in others)


@pytest.mark.parametrize(
    ("connector", "uri"),
    [
        (None, "file:///data/lake/landing/user_events"),
        (KafkaTopic(servers="a:9092,b:9092", topic="clicks"), "kafka://a:9092/clicks"),
        (DeltaTable(uri="/others/table"), "file:///others/table"),
        (DeltaTable(uri="s3a://bucket/table"), "s3a://bucket/table"),
    ],
)
def test_a_source_lies_where_its_rows_come_from(connector, uri):
    (asset,) = source_assets(replace(SOURCE, connector=connector), "/data/lake")
    assert asset.uri == uri


DAGS = ("streams", "deploy", "table_maintenance")


@pytest.mark.parametrize("named", ["mine", "~/mine"])
@pytest.mark.parametrize("file", DAGS)
def test_tasks_have_a_relative_lake_from_the_folder_that_airflow_was_started_in(
    file, named, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    given = [lake for dag in load_dags(named, f"dags/{file}.py").values() for lake in lakes_of(dag)]
    mine = str(tmp_path / "mine")
    assert given
    assert set(given) == {mine}


def lakes_of(dag) -> list[str]:
    """The lakes that the Dag's jobs are given."""
    args = [getattr(task, "arguments", []) for task in dag.tasks]
    return [each[each.index("--lake") + 1] for each in args if "--lake" in each]


def test_a_lake_is_as_it_was_given_or_the_projects(monkeypatch):
    monkeypatch.delenv("LAKE", raising=False)
    assert Path(default_lake()) == ROOT / "lake"
    for lake in ("/data/lake", "s3a://bucket/lake", "hdfs://name/lake"):
        monkeypatch.setenv("LAKE", lake)
        assert default_lake() == lake


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


def test_a_source_of_a_streams_table_has_the_asset_of_that_table():
    """Of one URI there is one Asset: Airflow refuses to read a Dag with two."""
    parent = stream_named("user_counts")
    child = Source(name="counted", comment="Emitted", connector=StreamTable(parent.name))
    assert source_assets(child, "/lake") == [table_asset(parent, "/lake")]
