"""A deadline that a scheduler misses in earnest: who is told of a run that does not end in time."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from include.lake.ops import append_ops
from include.lake.paths import made_lake
from tests.e2e.one_stream import STREAM, project_of_one_stream, run_in

DELAY = timedelta(minutes=10)
PROMISE = timedelta(minutes=12)
PAUSED = "paused_counts"
# Of a provider's notifiers it has what may be missing where no task runs: templates, a connection.
NOTIFY = """
from pathlib import Path
from airflow.sdk import BaseHook, BaseNotifier

class ToFile(BaseNotifier):
    template_fields = ("message",)

    def __init__(self, connection):
        super().__init__()
        self.connection, self.message = connection, "{{ alert.text }}"

    def notify(self, context):
        with Path(BaseHook.get_connection(self.connection).host).open("a") as file:
            file.write(self.message)

NOTIFY = (ToFile("in_environment"), ToFile("in_database"))
"""
# Its tasks have no place in their pool: the run of an interval begins, and does not end until they have.
MISS = """
import json, os, sys, time

from include.airflow.environment import any_free_port
from include.airflow.local_airflow import airflow
from include.lake.paths import Lake

lake, told, stream, paused = Lake(sys.argv[1]), *sys.argv[2:]
LATEST = time.monotonic() + 480

def wait_for(what, is_there):
    while not (found := is_there()):
        parts.check_alive()
        assert time.monotonic() < LATEST, f"no {what}"
        time.sleep(1.0)
    return found

def set_places(places):
    parts.finish("pool", "pools", "set", "source_user_events", places, "by a test")

def heard(number):
    return os.path.exists(f"{told}{number}")

os.environ["AIRFLOW_CONN_IN_ENVIRONMENT"] = json.dumps({"conn_type": "fs", "host": f"{told}1"})
with airflow(lake, any_free_port()) as (parts, api):
    database = ["in_database", "--conn-type=fs", f"--conn-host={told}2"]
    parts.finish("connection", "connections", "add", *database)
    set_places("0")
    parts.start("dag-processor", "dag-processor")
    wait_for("Dags", lambda: api.dag(stream) and api.dag(paused))
    api.call("PATCH", f"/api/v2/dags/{paused}", json={"is_paused": True})
    api.trigger(paused, "by_hand")
    parts.start("scheduler", "scheduler", "--skip-serve-logs")
    wait_for("message", lambda: heard(1))
    missed = {
        "heard": [number for number in (1, 2) if heard(number)],
        "runs": api.dag_runs(stream),
        "paused": api.dag_runs(paused),
        "deadlines": api.call("GET", "/ui/dags/~/dagRuns/~/deadlines")["deadlines"],
    }
    set_places("1")
    wait_for("second message", lambda: heard(2))
    print("RESULT", json.dumps(missed), flush=True)
"""


@pytest.fixture
def project(tmp_path):
    """Two streams that promise to be fresh, a run every minute."""
    project = project_of_one_stream(tmp_path)
    streams = project / "include" / "streams"
    text = (streams / f"{STREAM}.py").read_text()
    changed = text.replace(
        'schedule="0 * * * *",', f'schedule="* * * * *", fresh_within={PROMISE!r},'
    ).replace("from datetime import timedelta", "import datetime\nfrom datetime import timedelta")
    for name in (STREAM, PAUSED):
        (streams / f"{name}.py").write_text(changed)
    (streams / "notify.py").write_text(NOTIFY)
    return project


@pytest.fixture
def lake(tmp_path):
    """One whose stream has run before, and is just not fresh any more."""
    lake = made_lake(str(tmp_path / "lake"))
    now = datetime.now(UTC)
    run = {"started_at": now, "ended_at": now, "outcome": "succeeded", "until": now - PROMISE}
    append_ops(lake, "runs", [run | {"run_id": "1", "job": "run_stream", "subject": STREAM}])
    return lake


@pytest.mark.airflow
@pytest.mark.e2e
@pytest.mark.turn(2)
def test_a_scheduler_tells_of_a_run_that_has_not_ended_by_its_deadline(project, lake, tmp_path):
    told = tmp_path / "told"
    dags = (f"stream_{STREAM}", f"stream_{PAUSED}")
    missed = run_in(project, MISS, lake.root, str(told), *dags)
    (run,) = missed["runs"]
    assert run["state"] == "running"
    # A connection of Airflow's database is not for what runs for a deadline. A task has it.
    assert missed["heard"] == [1]
    messages = [Path(f"{told}{n}").read_text() for n in (1, 2)]
    assert messages[0].count(f"{STREAM}: behind_promise\n") == 2  # at once, and by the task `alert`
    assert messages[0].endswith(messages[1])
    # A Dag that is paused has no deadline, nor has a run by hand: it is of no interval.
    assert [each["dag_run_id"] for each in missed["paused"]] == ["by_hand"]
    (deadline,) = missed["deadlines"]
    assert (deadline["dag_run_id"], deadline["missed"]) == (run["dag_run_id"], True)
    due = datetime.fromisoformat(run["logical_date"]) + PROMISE - DELAY
    assert datetime.fromisoformat(deadline["deadline_time"]) == due
