"""A chain of three streams in a running Airflow: a child starts when its parent has published, a backfill goes
downstream, a deploy that stops in the middle is finished. Jobs run without a JVM."""

from typing import Any

import pytest

from include.lake.paths import Lake, made_lake
from tests.e2e.one_stream import PLAY, project_without_jvm, run_in

pytestmark = [pytest.mark.airflow, pytest.mark.e2e, pytest.mark.turn(1)]

NAMES = ("user_sessions", "session_streaks", "streak_alerts")
# The start of a job does first what the lake's file `before` says.
BEFORE = """
test ! -e "$LAKE/before" || . "$LAKE/before"
exec"""
SCENES = """
import re, subprocess

from deltalake import DeltaTable
from include.lake.ops import read_ops
from include.registry import stream_named
from include.stream.stream_status import stream_status

root, *children = names = sys.argv[2:]
LATEST += 1200
landing, before = Path(lake.landing("user_events")), Path(lake.root, "before")
child = Path("include", "streams", f"{children[0]}.py").absolute()
# SIGKILL to the task and its job as soon as a rebuild writes a savepoint; the child's file changes meanwhile.
KILL = 'case "$*" in *rebuild_stream*{name}*) {python} -m tests.e2e.without_jvm "$@" & ' \\
       'until test "$(ls {folder} | wc -l)" -gt {count} || ! kill -0 $!; do :; done; kill -9 $PPID $! $$;; esac'
CHANGE = 'case "$*" in *rebuild_stream*{name}*) sed -i s/hours=2/hours=3/ {file};; esac'

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
    details = f"/api/v2/dags/deploy/dagRuns/{name}/taskInstances/approve/-1/hitlDetails"
    # Airflow 3.3.2 fails a task that is answered before its scheduler knows that it waits.
    waits = re.compile(rf"Received executor event .*task_id='approve', run_id='{name}'")
    wait_for("question", lambda: waits.search(parts.log("scheduler").read_text()))
    api.call("PATCH", details, json={"chosen_options": [answer], "params_input": {}})
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
    result["deployed"] = [deploy("mend"), rebuilds()]
    wait_for("right tables", lambda: has_rows(16, 2, 2) and are_right())

def rebuilds():
    runs = read_ops(lake, "runs", {"job": "rebuild_stream"}).to_pylist()
    return Counter(run["subject"] for run in runs if run["outcome"] == "succeeded")

def an_apply_is_killed():
    late("latest", 9)
    folder = Path(lake.root, "savepoints", children[0])
    before.write_text(KILL.format(name=children[0], python=sys.executable, folder=folder, count=len([*folder.iterdir()])))
    result["killed"] = [deploy("killed")]
    before.unlink()
    api.call("POST", "/api/v2/dags/deploy/clearTaskInstances", json={"dag_run_id": "killed", "dry_run": False})
    result["killed"] += [ended("deploy", "killed"), rebuilds()]
    wait_for("right tables", lambda: has_rows(18, 2, 2) and are_right())

def a_plan_has_changed():
    late("last", 10)
    file = child.read_text()
    before.write_text(CHANGE.format(name=root, file=child))
    result["changed"] = [deploy("changed")]
    before.unlink()
    tasks = api.call("GET", "/api/v2/dags/deploy/dagRuns/changed/taskInstances")["task_instances"]
    result["states"] = {task["task_id"]: task["state"] for task in tasks}
    plan = [sys.executable, "-m", "include.cli", "plan", "--json", "--lake", lake.root]
    streams = json.loads(subprocess.run(plan, capture_output=True, check=True).stdout)["streams"]
    result["plan"] = {each["stream"]: each["state"] for each in streams}
    result["page"] = re.findall('class="nowrap">(right|wrong|waits)', api.client.get("/state/").text)
    child.write_text(file)
    result["changed"].append(deploy("mended"))
    wait_for("right tables", lambda: has_rows(20, 2, 2) and are_right())

with airflow(lake, any_free_port()) as (parts, api):
    start_background(parts, api)
    # One of the schedule may be due, and would take along what lands.
    wait_for("Dags", lambda: all(api.dag(f"stream_{name}") for name in names))
    wait_for("end of the first runs", lambda: runs_of(root) and is_idle())
    for scene in (new_code_waits, a_parent_publishes, a_backfill_goes_downstream, a_plan_mends_the_chain,
                  an_apply_is_killed, a_plan_has_changed):
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
    submit = project / "include" / "bin" / "spark-submit-with-parent"
    submit.write_text(submit.read_text().replace("\nexec", BEFORE))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPLOY", "approve")
        return run_in(project, PLAY + SCENES, lake.root, *NAMES)


def test_new_code_runs_when_its_plan_is_approved(played):
    assert played["new"] == ["success", "failed", "success", "success"]


def test_a_child_starts_when_its_parent_has_published_and_only_then(played):
    started = [played["published"][name].get("asset_triggered") for name in NAMES]
    assert started == [None, 1, 1]


def test_a_backfill_goes_downstream_then_a_plan_does_and_each_rebuilds_a_stream_once(played):
    assert played["late"] == dict(zip(NAMES, (12, 2, 2), strict=True))
    assert played["deployed"] == ["success", dict.fromkeys(NAMES, 2)]


def test_a_killed_apply_is_finished_when_it_is_cleared_and_what_was_done_is_left_out(played):
    assert played["killed"] == ["failed", "success", dict.fromkeys(NAMES, 3)]


def test_an_apply_whose_plan_has_changed_is_red_and_a_new_one_mends_what_it_left(played):
    root, child, grandchild = NAMES
    assert [played["states"][f"apply_{name}"] for name in NAMES] == [
        "success",
        "failed",
        "upstream_failed",
    ]
    assert played["plan"] == {root: "unchanged", child: "settings", grandchild: "upstream"}
    assert played["page"] == ["right", "wrong", "waits"]
    assert played["changed"] == ["failed", "success"]
