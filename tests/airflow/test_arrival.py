"""The schedule of a stream that starts by arrival, and a look that fails. tests/e2e has a running Airflow."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk import AssetAny
from airflow.serialization.serialized_objects import DagSerialization

from include.airflow.arrival import ArrivalTrigger, looked, schedule_of
from include.airflow.assets import table_asset
from include.lake.paths import Lake
from include.registry import stream_named
from include.streams import user_counts
from tests.dags import load_dags
from tests.refused import refused

DAY = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def dags(lake, monkeypatch):
    """Those of the lake, as Airflow stores them; user_counts starts by arrival."""
    by_arrival = replace(user_counts.STREAM, on_arrival=timedelta(minutes=1))
    monkeypatch.setattr(user_counts, "STREAM", by_arrival)
    loaded = load_dags(lake.root).items()
    return {name: DagSerialization.from_dict(DagSerialization.to_dict(dag)) for name, dag in loaded}


def test_a_dag_that_starts_by_arrival_has_the_intervals_of_its_cron(dags):
    def intervals(dag: Any) -> list[tuple[datetime, datetime]]:
        found = dag.iter_dagrun_infos_between(DAY, DAY + timedelta(hours=2))
        return [(info.data_interval.start, info.data_interval.end) for info in found]

    by_arrival, by_cron = dags["stream_user_counts"], dags["stream_user_sessions"]
    assert by_arrival.timetable.periodic
    assert intervals(by_arrival) == intervals(by_cron)
    assert len(intervals(by_cron)) == 3


def test_a_dag_starts_by_the_table_that_it_reads_or_by_arrival(lake):
    stream, parent = stream_named("session_streaks"), stream_named("user_sessions")
    dag = load_dags(lake.root)["stream_session_streaks"]
    (table,) = dag.timetable.asset_condition.objects
    assert table == table_asset(parent, lake.root)
    by_both = schedule_of(replace(stream, on_arrival=timedelta(minutes=1)), lake.root)
    assert by_both.timetable == dag.timetable.timetable
    assert isinstance(by_both.asset_condition, AssetAny)
    assert [asset.name for asset in by_both.asset_condition.objects] == [
        parent.name,
        f"arrival/{stream.name}",
    ]


def test_streams_of_an_interval_share_a_look_and_have_triggers_of_their_own(dags, lake):
    ((_, asset),) = dags["stream_user_counts"].timetable.asset_condition.iter_assets()
    (watcher,) = asset.watchers
    made = ArrivalTrigger("user_counts", lake.root, 60.0)
    path, given = made.serialize()
    assert (watcher.trigger["classpath"], watcher.trigger["kwargs"]) == (path, given)
    other = ArrivalTrigger("user_sessions", lake.root, 60.0)
    assert other.serialize() != made.serialize()
    assert other.shared_stream_key() == made.shared_stream_key()
    assert (
        ArrivalTrigger(**given | {"seconds": 61.0}).shared_stream_key() != made.shared_stream_key()
    )


def test_a_look_that_fails_says_nothing(lake: Lake):
    assert asyncio.run(looked(f"{lake.root}/none", 60.0)) is None
    assert asyncio.run(looked(lake.root, 60.0)) == {}  # no stream that we ship starts by arrival


def test_nobody_looks_without_end():
    with refused("wrong_setting", subject="on_arrival"):
        replace(user_counts.STREAM, on_arrival=timedelta(seconds=1))
