"""A chain of three streams in a running Airflow: a child starts when its parent has published, a backfill goes
downstream. Jobs run without a JVM."""

from collections import Counter
from typing import Any

import pytest

from include.lake.ops import read_ops
from include.lake.paths import Lake, made_lake
from tests.e2e.one_stream import PLAY, project_without_jvm, run_in

pytestmark = [pytest.mark.airflow, pytest.mark.e2e, pytest.mark.turn(1)]

NAMES = ("user_sessions", "session_streaks", "streak_alerts")
SCENES = """
from deltalake import DeltaTable
from include.registry import stream_named
from include.stream.stream_status import stream_status

root, *children = names = sys.argv[2:]
landing = Path(lake.landing("user_events"))

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
    days = ("2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z")
    backfill(f"stream_{root}", *days, downstream=True, rebuild=True)
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
    schedules = zip(NAMES, ("0 *", "5 *", "10 *"), ("0 0 * * *", *["0 0 1 1 *"] * 2), strict=True)
    changes = {
        f"include/streams/{name}.py": (f'schedule="{before} * * *"', f'schedule="{after}"')
        for name, before, after in schedules
    }
    project = project_without_jvm(tmp_path_factory.mktemp("project"), *NAMES, changes=changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPLOY", "approve")
        return run_in(project, PLAY + SCENES, lake.root, *NAMES)


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
