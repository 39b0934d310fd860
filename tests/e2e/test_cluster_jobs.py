"""Jobs on a cluster: a master and a worker as on another machine, which do not have the project."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from include.cli.__main__ import main
from include.lake.paths import Lake
from include.registry import stream_named
from include.spark.submit import run_job
from tests.e2e.standalone_cluster import Cluster, standalone_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.turn(0)]

STREAM = stream_named("user_counts")
START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and a worker with two cores."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def on_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("SPARK_MASTER", cluster.master)
    monkeypatch.setenv("PYTHONPATH", "")  # of this process, which its jobs get another for
    return cluster


def land(lake: Lake, events: int = 3_000) -> list[tuple[str, datetime]]:
    """Events of 12 hours, in no order within 5 minutes, in three files; who had one, and when."""
    chosen = random.Random(7)
    times = [START + timedelta(seconds=43_200 * n / events) for n in range(events)]
    times = [time - timedelta(seconds=chosen.randrange(300)) for time in times]
    rows = [(f"user-{chosen.randrange(40)}", time) for time in times]
    folder = Path(lake.landing(STREAM.source))
    folder.mkdir(parents=True)
    for n in range(3):
        part = rows[n * events // 3 : (n + 1) * events // 3]
        lines = [json.dumps(event(user, time)) for user, time in part]
        (folder / f"{n}.jsonl").write_text("\n".join(lines))
    return rows


def event(user: str, time: datetime) -> dict[str, Any]:
    stamp = time.replace(tzinfo=None).isoformat() + "Z"
    return {"user_id": user, "event_type": "view", "event_time": stamp, "value": 1.0}


def test_a_stream_runs_on_workers_without_the_project(on_cluster, lake, capfd):
    """By `./stateful stream`, in a lake that is given as a URI."""
    rows = land(lake)
    uri = f"file://{lake.root}"
    # As if much had landed: so little is ingested without Spark.
    assert run_job("ingest_source", ["--source", STREAM.source, "--lake", uri]) == 0
    assert main(["stream", STREAM.name, "--lake", uri]) == 0, capfd.readouterr()
    complete = max(time for _, time in rows) - STREAM.watermark_delay
    expected = Counter(user for user, time in rows if time <= complete)
    found = DeltaTable(lake.table(STREAM.name)).to_pyarrow_table().to_pylist()
    assert {row["user_id"]: row["total_count"] for row in found} == expected
    # That it was run there, and not in the driver: by each job, with the jars that it brought.
    executors = list(on_cluster.work.glob("app-*/0"))
    assert len(executors) >= 2
    assert all(list(folder.glob("*delta-spark*.jar")) for folder in executors)
