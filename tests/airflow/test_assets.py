"""What a stream's tasks read and write, in Airflow's graph of Assets."""

from dataclasses import replace

import pytest

from include.airflow.assets import bronze_asset, source_asset, table_asset
from include.origins import DeltaTable, KafkaTopic
from include.registry import source_named, stream_named
from tests.dags import load_dags

STREAM, SOURCE = stream_named("user_counts"), source_named("user_events")


def test_edges_lead_from_the_source_over_bronze_to_the_table(lake):
    dag = load_dags(lake.root)["stream_user_counts"]
    ingest, publish = dag.get_task("ingest"), dag.get_task("publish")
    assert ingest.inlets == [source_asset(SOURCE, lake.root)]
    assert ingest.outlets == publish.inlets == [bronze_asset(SOURCE, lake.root)]
    assert publish.outlets == [table_asset(STREAM, lake.root)]
    others = [task for task in dag.tasks if task.task_id not in ("ingest", "publish", "alert")]
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
