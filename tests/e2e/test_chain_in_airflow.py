"""A chain of three streams in a running Airflow: a child starts when its parent has published, a backfill goes
downstream. Jobs run without a JVM."""

import re
import sys
from collections import Counter
from typing import Any

import pytest

from include.lake.ops import read_ops
from include.lake.paths import Lake, made_lake
from tests.e2e.make_run import ROOT
from tests.e2e.one_stream import project_of_one_stream, run_in
from tests.e2e.test_arrival import SUBMIT

pytestmark = [pytest.mark.airflow, pytest.mark.e2e, pytest.mark.turn(1)]

NAMES = ("user_sessions", "session_streaks", "streak_alerts")
PLAY = """
import json, sys, time
from collections import Counter
from pathlib import Path

from deltalake import DeltaTable
from include.airflow.environment import any_free_port
from include.airflow.local_airflow import airflow, start_background
from include.lake.paths import Lake
from include.registry import stream_named
from include.stream.stream_status import stream_status

lake, names = Lake(sys.argv[1]), sys.argv[2:]
root, *children = names
landing, result = Path(lake.landing("user_events")), {}
LATEST = time.monotonic() + 1500

def wait_for(what, is_there):
    while not (found := is_there()):
        parts.check_alive()
        if time.monotonic() > LATEST:
            runs = {name: [(run["dag_run_id"], run["state"]) for run in runs_of(name)] for name in names}
            sys.exit(f"no {what}: {result}, {runs}, {rows()}")
        time.sleep(1.0)
    return found

def runs_of(name, kind=None):
    found = api.call("GET", f"/api/v2/dags/stream_{name}/dagRuns", params={"limit": 100})["dag_runs"]
    return [run for run in found if kind in (None, run["run_type"])]

def is_idle():
    return not [run for name in names for run in runs_of(name) if run["state"] in ("queued", "running")]

def land(name, *hours):
    landing.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"user_id": user, "event_type": "x", "value": 1.0, "event_time": f"2026-03-{hour // 24 + 1:02}T{hour % 24:02}:00:00Z"})
             for hour in hours for user in ("ann", "bob")]
    (landing / f"{name}.jsonl").write_text("".join(f"{line}\\n" for line in lines))

def rows():
    tables = {name: lake.table(name) for name in names}
    return {name: DeltaTable(path).to_pyarrow_table().num_rows for name, path in tables.items() if lake.is_delta_table(path)}

def are_right():
    found = [stream_status(lake, stream_named(name)) for name in names]
    return all(status.is_right and status.live_is_right for status in found)

def has_rows(*counts):
    return rows() == dict(zip(names, counts)) and is_idle()

def ended(dag, name):
    return wait_for(name, lambda: (state := api.dag_run(dag, name)["state"]) in ("success", "failed") and state)

def run_root(name):
    api.trigger(f"stream_{root}", name)
    return ended(f"stream_{root}", name)

def kinds():
    return {name: Counter(run["run_type"] for run in runs_of(name)) for name in names}

def deploy(name, answer="Approve"):
    api.trigger("deploy", name)
    asked = f"/api/v2/dags/deploy/dagRuns/{name}/taskInstances/approve/-1/hitlDetails"
    wait_for("question", lambda: api.call("GET", asked))
    api.call("PATCH", asked, json={"chosen_options": [answer], "params_input": {}})
    return ended("deploy", name)

def new_code_waits():
    land("first", 1, 2, 3, 4, 5, 6, 30)
    result["new"] = [deploy("rejected", "Reject"), run_root("refused"), deploy("approved"), run_root("first")]

def a_parent_publishes():
    wait_for("rows of the chain", lambda: has_rows(12, 2, 2))
    result["published"] = kinds()

def late(name, hour):
    land(name, hour)
    run_root(name)
    wait_for("late rows", lambda: is_idle() and not are_right())

def a_backfill_goes_downstream():
    late("late", 7)
    result["late"] = rows()
    dates = {"from_date": "2026-03-01T00:00:00Z", "to_date": "2026-03-02T00:00:00Z"}
    body = {"dag_id": f"stream_{root}", **dates, "max_active_runs": 1, "reprocess_behavior": "completed",
            "run_backwards": False, "dag_run_conf": {"downstream": True, "rebuild": True}}
    api.call("POST", "/api/v2/backfills", json=body)
    wait_for("right tables", lambda: has_rows(14, 2, 2) and are_right())

def a_plan_mends_the_chain():
    late("later", 8)
    result["deployed"] = deploy("mend")
    wait_for("right tables", lambda: has_rows(16, 2, 2) and are_right())

with airflow(lake, any_free_port()) as (parts, api):
    start_background(parts, api)
    # One of the schedule may be due, and would take along what lands.
    wait_for("Dags", lambda: all(api.dag(f"stream_{name}") for name in names))
    wait_for("end of the first runs", lambda: runs_of(root) and is_idle())
    scenes = (new_code_waits, a_parent_publishes, a_backfill_goes_downstream, a_plan_mends_the_chain)
    for scene in scenes:
        scene()
    print("RESULT", json.dumps(result), flush=True)
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return made_lake(str(tmp_path_factory.mktemp("chain") / "lake"))


@pytest.fixture(scope="module")
def played(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One Airflow in which all happens, one thing after the other."""
    project = project_of_one_stream(tmp_path_factory.mktemp("project"), *NAMES)
    (project / "tests").symlink_to(ROOT / "tests")
    (project / "dags" / "table_maintenance.py").unlink()  # due at once, in a new database
    submit = project / "include" / "bin" / "spark-submit-with-parent"
    submit.write_text(SUBMIT.format(python=sys.executable))
    for name, hour in zip(NAMES, ("0 0 * * *", "0 0 1 1 *", "0 0 1 1 *"), strict=True):
        file = project / "include" / "streams" / f"{name}.py"
        file.write_text(re.sub('schedule="[^"]*"', f'schedule="{hour}"', file.read_text()))
    task = (project / "dags" / "spark_task.py").read_text()
    (project / "dags" / "spark_task.py").write_text(task.replace("retries=2", "retries=0"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPLOY", "approve")
        return run_in(project, PLAY, lake.root, *NAMES)


def test_new_code_runs_when_its_plan_is_approved(played):
    assert played["new"] == ["success", "failed", "success", "success"]


def test_a_child_starts_when_its_parent_has_published_and_only_then(played):
    started = [played["published"][name].get("asset_triggered") for name in NAMES]
    assert started == [None, 1, 1]


def test_a_backfill_goes_downstream_then_a_plan_does_and_each_rebuilds_a_stream_once(lake, played):
    assert played["late"] == dict(zip(NAMES, (12, 2, 2), strict=True))
    assert played["deployed"] == "success"
    rebuilt = read_ops(lake, "runs", {"job": "rebuild_stream"}).to_pylist()
    done = Counter(run["subject"] for run in rebuilt if run["outcome"] == "succeeded")
    assert done == dict.fromkeys(NAMES, 2)
