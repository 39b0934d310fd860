"""The Dag that docs/operate.md shows follows a table by what its events say."""

import json
import re
from datetime import timedelta
from types import SimpleNamespace

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import Asset

from include.fold.admission import micros_of
from include.lake.ops import append_ops
from include.observe.asset_event import asset_extra, restate_extra
from include.registry import stream_named
from include.settings import PROJECT
from tests.dags import LATER, load_dags
from tests.stream.entries import entry, record


@pytest.fixture
def report(tmp_path):
    page = (PROJECT / "docs" / "operate.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    file = tmp_path / "report.py"
    file.write_text(next(block for block in blocks if "report_of_user_counts" in block))
    bag = DagBag(str(file))
    assert bag.import_errors == {}
    return bag.dags["report_of_user_counts"]


def told(report, *extras: dict) -> dict:
    events = [SimpleNamespace(extra=json.loads(json.dumps(extra))) for extra in extras]
    task = report.get_task("report")
    return task.python_callable(triggering_asset_events={Asset("user_counts"): events})


def test_it_is_scheduled_on_the_table_that_the_stream_publishes(report, lake):
    (named,) = report.timetable.asset_condition.objects
    publish = load_dags(lake.root)["stream_user_counts"].get_task("publish")
    assert [asset.name for asset in publish.outlets] == [named.name]


def test_it_reads_until_when_and_what_a_backfill_has_changed(report, lake):
    run = {"job": "run_stream", "subject": "user_counts", "outcome": "succeeded"}
    times = {"started_at": LATER, "ended_at": LATER, "dag_run_id": "d1", "run_id": "r1"}
    append_ops(lake, "runs", [run | times])
    record(lake, entry(0, "live", None, micros_of(LATER), bronze_id=None))
    interval = run | {"job": "restate_interval", "dag_run_id": "d3"}
    times = {"start": LATER - timedelta(hours=1), "until": LATER, "ended_at": LATER}
    append_ops(lake, "runs", [interval | times])
    runs = asset_extra(lake, stream_named("user_counts"), "d1")
    backfill = restate_extra(lake, stream_named("user_counts"), "d3")
    until = LATER.isoformat()
    again = [["2026-03-01T04:00:00+00:00", "2026-03-01T05:00:00+00:00"]]
    assert told(report, runs, backfill) == {"until": until, "again": again}
    assert told(report, runs) == {"until": until, "again": []}
