"""What a stream's tasks have read and written: in Airflow's graph of Assets, and in numbers."""

from dataclasses import replace
from datetime import timedelta

import pytest

from include.airflow.assets import bronze_asset, source_asset, table_asset
from include.airflow.lineage import dataset_name, lineage_of
from include.lake.ops import append_ops
from include.origins import DeltaTable, KafkaTopic
from include.registry import source_named, stream_named
from tests.dags import LATER, load_dags

STREAM, SOURCE = stream_named("user_counts"), source_named("user_events")


def test_edges_lead_from_the_source_over_bronze_to_the_table(lake):
    dag = load_dags(lake.root)["stream_user_counts"]
    ingest, publish = dag.get_task("ingest"), dag.get_task("publish")
    assert ingest.inlets == [source_asset(SOURCE, lake.root)]
    assert ingest.outlets == publish.inlets == [bronze_asset(SOURCE, lake.root)]
    assert publish.outlets == [table_asset(STREAM, lake.root)]
    others = [task for task in dag.tasks if task.task_id not in ("ingest", "publish")]
    assert not any(task.inlets or task.outlets for task in others)


def test_streams_of_a_source_have_one_asset_of_its_bronze(lake):
    dags = load_dags(lake.root)
    of = [dags[f"stream_{name}"].get_task("ingest") for name in ("user_counts", "user_sessions")]
    assert of[0].inlets == of[1].inlets
    assert of[0].outlets == of[1].outlets


@pytest.mark.parametrize(
    ("origin", "uri"),
    [
        (None, "file:///data/lake/landing/user_events"),
        (KafkaTopic(servers="a:9092,b:9092", topic="clicks"), "kafka://a:9092/clicks"),
        (DeltaTable(uri="/others/table"), "file:///others/table"),
        (DeltaTable(uri="s3a://bucket/table"), "s3a://bucket/table"),
    ],
)
def test_a_source_lies_where_its_rows_come_from(origin, uri):
    assert source_asset(replace(SOURCE, origin=origin), "/data/lake").uri == uri


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("file:///data/lake/bronze/a", ("file", "/data/lake/bronze/a")),
        ("s3://bucket/lake/bronze/a", ("s3://bucket", "lake/bronze/a")),
        ("kafka://a:9092/clicks", ("kafka://a:9092", "clicks")),
    ],
)
def test_datasets_are_named_by_the_conventions_of_openlineage(uri, name):
    assert dataset_name(uri) == name


def test_runs_of_a_dag_run_are_added_up(lake):
    run = {"job": "run_stream", "subject": "user_counts", "dag_run_id": "d1", "until": LATER}
    for number, outcome in ((1, "succeeded"), (2, "succeeded"), (4, "failed")):
        ended = LATER + timedelta(hours=number)
        told = {"run_id": f"r{number}", "outcome": outcome, "ended_at": ended}
        append_ops(lake, "runs", [run | told | {"rows_in": number, "rows_out": 10 * number}])
    found = lineage_of(lake.root, STREAM, "run_stream", "d1")
    assert found is not None
    assert [(each.uri, each.rows) for each in found.inputs] == [
        (f"file://{lake.bronze('user_events')}", 3)
    ]
    (table,) = found.outputs
    assert (table.rows, table.version) == (30, None)
    assert [column.name for column in table.columns] == ["user_id", "total_count", "emitted_at"]
    assert all(column.comment for column in table.columns)
    assert found.facts["run_ids"] == ["r1", "r2"]
    assert found.facts["until"] == "2026-03-01T05:00:00+00:00"


def test_of_a_backfill_the_intervals_and_what_they_became(lake):
    row = {"stream": "user_counts", "dag_run_id": "d2", "kind": "recompute", "run_id": "r1"}
    counts = {"rows_read": 5, "rows_before": 1, "rows_after": 2, "rows_removed": 0, "rows_added": 1}
    append_ops(lake, "intervals", [row | counts | {"start": LATER, "until": LATER}])
    found = lineage_of(lake.root, STREAM, "recompute_interval", "d2")
    assert found is not None
    assert (found.inputs[0].rows, found.outputs[0].rows) == (5, 2)
    assert found.facts["intervals"] == [[LATER.isoformat(), LATER.isoformat()]]


def test_what_changes_no_table_has_none(lake):
    assert lineage_of(lake.root, STREAM, "compact_state", "d1") is None
