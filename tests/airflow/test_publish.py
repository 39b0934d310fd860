"""The Asset event and the note of a Dag run, by `publish`; and the Dag of docs/operate.md that reads the event."""

import json
import re
from datetime import timedelta
from types import SimpleNamespace
from typing import NamedTuple
from unittest.mock import Mock

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowSkipException

from include.airflow.dag_run import run_note
from include.fold.admission import micros_of
from include.lake.ops import append_ops
from include.registry import stream_named
from include.settings import PROJECT
from tests.dags import LATER, PARAMS, dag_run, lived, load_dags
from tests.refused import commands_in
from tests.stream.entries import entry, record

HOUR = timedelta(hours=1)
STREAM = "user_sessions"
COUNTS = {"rows_read": 1_900, "rows_before": 30, "rows_after": 32}
INTERVAL = ["2026-03-01T04:00:00+00:00", "2026-03-01T05:00:00+00:00"]
RESTATED = {"run_type": "backfill", "restate_interval": "success"}


class Asked(NamedTuple):
    """The parameters of a Dag run, and the events that it has consumed."""

    params: dict[str, bool] = PARAMS
    events: tuple[SimpleNamespace, ...] = ()


ASKED = Asked()
BY_PARAMETER = Asked(PARAMS | {"downstream": True})
BY_EVENT = Asked(events=(SimpleNamespace(extra=None), SimpleNamespace(extra={"downstream": True})))


class Publisher:
    """The task `publish`, as Airflow runs it."""

    def __init__(self, lake, stream: str = STREAM) -> None:
        self.lake = lake
        self.task = load_dags(lake.root)[f"stream_{stream}"].get_task("publish")

    def run(self, dag_run_id: str, run_type: str = "scheduled", queued=0, asked=ASKED, **states):
        """The extra of the event, None where the task is skipped."""
        (asset,) = self.task.outlets
        events = {asset: SimpleNamespace(extra=None)}
        ti = Mock(dag_id=f"stream_{STREAM}", get_task_states=lambda **_: {dag_run_id: states})
        ti.get_dr_count = lambda **_: queued
        dag_run_of = dag_run(run_type, run_id=dag_run_id, consumed_asset_events=asked.events)
        context = {"dag_run": dag_run_of, "params": asked.params, "ti": ti, "dag": self.task.dag}
        try:
            self.task.python_callable(outlet_events=events, **context)
        except AirflowSkipException:
            return None
        finally:
            has_note = states.get("restate_interval") == "success" and run_type == "backfill"
            assert [call.kwargs["key"] for call in ti.xcom_push.call_args_list] == [
                "note"
            ] * has_note
        return json.loads(json.dumps(events[asset].extra))

    def drained(self, run_id: str, hours: int, rows: int, **others) -> None:
        row = {"run_id": run_id, "job": "run_stream", "rows_out": rows, "until": LATER}
        self._ran(row | others, hours)

    def restated(self, run_id: str, hours: int, job: str = "restate_interval", **others) -> None:
        counts = {"rows_in": 1_900, "rows_before": 30, "rows_out": 32}
        row = {"run_id": run_id, "job": job, "start": LATER - HOUR, "until": LATER}
        self._ran(row | counts | others, hours)

    def _ran(self, row: dict, hours: int) -> None:
        of = {"subject": STREAM, "dag_run_id": "d1", "outcome": "succeeded"}
        times = dict.fromkeys(("started_at", "ended_at"), LATER + hours * HOUR)
        append_ops(self.lake, "runs", [of | times | row])


@pytest.fixture
def publisher(lake):
    return Publisher(lake)


def test_a_run_that_was_cleared_has_what_it_has_done_since_too(publisher):
    publisher.drained("r1", hours=0, rows=5)
    assert publisher.run("d1", run_stream="success")["rows"] == 5
    publisher.drained("r2", hours=1, rows=2)
    again = publisher.run("d1", run_stream="success")
    assert (again["run_id"], again["rows"]) == ("r2", 7)


def test_a_run_that_failed_this_time_has_nothing_of_the_time_before(publisher):
    publisher.drained("r1", hours=0, rows=5)
    publisher.drained("r2", hours=1, rows=0, outcome="failed", error="x")
    assert publisher.run("d1", run_stream="failed") is None
    assert publisher.run("d1", run_stream="success")["rows"] == 5


def test_a_backfill_has_its_own_newest_restate_and_what_rebuilt_it(publisher):
    """All Runs keeps the run id of a scheduled run, under which that run is recorded, too."""
    publisher.drained("live", hours=0, rows=1)
    publisher.restated("last week", hours=1)
    assert publisher.run("d1", "backfill", restate_interval="failed") is None
    publisher.restated("newest", hours=2, savepoint_id="s2")
    publisher.restated("of another run", hours=3, dag_run_id="d2")
    publisher.restated("of another stream", hours=3, subject="user_counts")
    expected = {"run_id": "newest", "interval": INTERVAL, "savepoint": "s2"} | COUNTS
    expected |= {"complete_until": None, "ended_at": (LATER + 2 * HOUR).isoformat()}
    assert publisher.run("d1", **RESTATED) == expected
    publisher.restated("rebuild", hours=4, job="rebuild_stream", generation=7)
    rebuilt = publisher.run("d1", **RESTATED)
    assert (rebuilt["run_id"], rebuilt["rebuilt_generation"]) == ("newest", 7)
    assert publisher.run("d1")["run_id"] == "live"


@pytest.mark.parametrize("asked", [BY_PARAMETER, BY_EVENT])
def test_a_run_that_goes_downstream_says_so_changed_or_not_when_its_own_table_is_right(
    publisher, asked
):
    told = {"complete_until": None, "downstream": True}
    assert publisher.run("d1", asked=asked, rebuild="skipped") == told
    assert publisher.run("d1", asked=asked, rebuild="failed") is None
    assert publisher.run("d1", rebuild="skipped") is None
    publisher.restated("r1", hours=0, job="rebuild_stream", generation=7)
    rebuilt = publisher.run("d1", asked=asked, rebuild="success")
    assert (rebuilt["rebuilt_generation"], rebuilt["downstream"]) == (7, True)


def test_the_last_run_of_a_backfill_goes_downstream(publisher):
    publisher.restated("r1", hours=0)
    of = RESTATED | {"rebuild": "skipped", "asked": BY_PARAMETER}
    assert "downstream" not in publisher.run("d1", queued=1, **of)
    assert publisher.run("d1", **of)["downstream"]


def test_nobody_is_told_where_nobody_reads_the_table(lake):
    publisher = Publisher(lake, "user_counts")
    assert publisher.run("d1", asked=BY_PARAMETER, rebuild="skipped") is None


def test_a_note_has_the_interval_what_changed_in_it_and_what_is_left(lake, publisher):
    lived(lake)
    sessions, counts, backfill = (
        stream_named(STREAM),
        stream_named("user_counts"),
        dag_run("backfill"),
    )
    publisher.restated("r1", hours=0)
    extra, interval = publisher.run("d1", **RESTATED), ("03-01 04:00", "03-01 05:00")
    note = run_note(lake.root, sessions, backfill, extra=extra)
    assert all(figure in note for figure in (*interval, " 30 ", " 32;", "1,900 "))
    note = run_note(lake.root, sessions, backfill, extra=None)
    assert all(time in note for time in interval)
    note = run_note(lake.root, counts, backfill, extra=extra | {"rebuilt_generation": 7})
    assert ("generation 7" in note, commands_in(note)) == (True, ["rebuild user_counts --apply"])


def test_the_dag_of_the_docs_follows_a_table_by_its_events(lake, publisher, tmp_path):
    page = (PROJECT / "docs" / "operate.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    file = tmp_path / "report.py"
    text = next(block for block in blocks if "report_of_user_counts" in block)
    file.write_text(text.replace("user_counts", STREAM))
    report = DagBag(str(file)).dags[f"report_of_{STREAM}"]
    (named,) = report.timetable.asset_condition.objects
    assert [asset.name for asset in publisher.task.outlets] == [named.name]

    record(lake, entry(0, "live", None, micros_of(LATER), bronze_id=None), stream=STREAM)
    publisher.drained("r1", hours=0, rows=1)
    publisher.restated("r2", hours=0)
    extras = publisher.run("d1"), publisher.run("d1", **RESTATED)
    events = [SimpleNamespace(extra=extra) for extra in extras]
    read = report.get_task("report").python_callable
    until = LATER.isoformat()
    given = read(triggering_asset_events={Asset(STREAM): events})
    assert given == {"until": until, "again": [INTERVAL]}
    given = read(triggering_asset_events={Asset(STREAM): events[:1]})
    assert given == {"until": until, "again": []}
