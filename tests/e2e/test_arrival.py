"""Starts by arrival in a running Airflow: none is lost, and there is no hot loop. Jobs run without a JVM."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from include.fold.admission import micros_of
from include.ingest.ingest_log import read_done
from include.lake.ops import last_run
from include.lake.paths import Lake, made_lake
from include.registry import stream_named
from tests.e2e.one_stream import PLAY, STREAM, project_without_jvm, run_in
from tests.landed_sql import oracle_rows, table_rows

pytestmark = [pytest.mark.airflow, pytest.mark.e2e, pytest.mark.turn(2)]

AGAIN = 25.0
BURST, DAYS = 50, 3
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
SCENES = """
from include.ingest.ingest_log import read_done

stream, burst, today = *sys.argv[2:4], datetime.fromisoformat(sys.argv[4])
dag, landing = f"stream_{stream}", Path(lake.landing("user_events"))

def land(name, days=0, files=1):
    at = today - timedelta(days=days)
    for number in range(files):
        event = {"user_id": f"u{number % 7}", "event_type": "x", "value": 1.0,
                 "event_time": f"{at + timedelta(minutes=number):%Y-%m-%dT%H:%M:%SZ}"}
        hidden = landing / f"_{name}-{number}"
        hidden.write_text(json.dumps(event) + chr(10))
        hidden.rename(landing / f"{name}-{number}.jsonl")

def started(state=None):
    runs = [run for run in api.dag_runs(dag) if run["run_type"] == "asset_triggered"]
    return [run for run in runs if state in (None, run["state"])]

def done():
    return read_done(lake, "user_events").count

def events():
    return api.call("GET", "/api/v2/assets/events", params={"limit": 100})["asset_events"]

def arrivals():
    return [event for event in events() if (event["extra"] or {}).get("from_trigger")]

def watchers():
    assets = api.call("GET", "/api/v2/assets")["assets"]
    return [w for asset in assets if asset["name"] == f"arrival/{stream}" for w in asset["watchers"]]

def is_idle():
    waiting = (api.call("GET", f"/api/v2/dags/{dag}/assets/queuedEvents") or {}).get("queued_events")
    return not (waiting or started("queued") or started("running"))

def runs_one_more(before, files):
    return len(started("success")) > before and done() == files and is_idle()

def pause(is_paused):
    api.call("PATCH", f"/api/v2/dags/{dag}", json={"is_paused": is_paused})

def set_places(slots):
    body = {"name": f"source_user_events", "slots": slots, "include_deferred": False}
    api.call("PATCH", "/api/v2/pools/source_user_events", json=body)

def page():
    return api.client.get("/state/").text

def a_burst():
    land("burst", 3, int(burst))
    wait_for("run of the burst", lambda: runs_one_more(0, int(burst)))
    result["burst"] = {"done": done(), "runs": len(started())}

def a_pause():
    files, before = done() + 1, len(started("success"))
    pause(True)
    land("paused", 2)
    wait_for("end of the watch", lambda: not watchers())
    result["paused"] = {"runs": len(started("success")) - before}
    pause(False)
    wait_for("run after the pause", lambda: runs_one_more(before, files))

def a_dead_triggerer():
    files, before = done() + 1, len(started("success"))
    result["page"] = {"alive": "no triggerer" in page()}
    process = parts._running.pop("triggerer")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    land("dead", 1)
    wait_for("unhealthy triggerer", lambda: not are_healthy(api, "triggerer"))
    result["page"]["dead"] = "no triggerer" in page()
    result["dead"] = {"runs": len(started("success")) - before}
    parts.start("triggerer", "triggerer", "--skip-serve-logs")
    wait_for("run after the death", lambda: runs_one_more(before, files))

def a_failing_run():
    files, before = done() + 1, len(started("success"))
    Path(lake.root, "fail").touch()
    land("failing")
    wait_for("second failed run", lambda: len(started("failed")) >= 2)
    result["failing"] = {"missing": files - done()}
    Path(lake.root, "fail").unlink()
    wait_for("run after failures", lambda: runs_one_more(before, files))

def a_backfill():
    files, before, asked = done() + 1, len(started("success")), len(arrivals())
    set_places(0)
    backfill(dag, *((today - timedelta(days=days)).isoformat() for days in (3, 2)))
    def backfilled(*states):
        runs = api.call("GET", f"/api/v2/dags/{dag}/dagRuns", params={"run_type": "backfill"})["dag_runs"]
        return [run for run in runs if run["run_type"] == "backfill" and run["state"] in states]
    wait_for("backfill", lambda: backfilled("running"))
    land("meanwhile")
    wait_for("event beside the backfill", lambda: len(arrivals()) > asked)
    result["backfill"] = {"beside": len(started("success")) - before, "left": len(backfilled("running"))}
    set_places(1)
    wait_for("end of the backfill", lambda: not backfilled("running", "queued"))
    wait_for("run after the backfill", lambda: runs_one_more(before, files))
    result["backfill"]["runs"] = [
        [run["state"], run["data_interval_start"], run["data_interval_end"]] for run in backfilled("success", "failed")
    ]

def a_new_stream():
    streams, dag = Path("include", "streams"), "stream_order_counts"
    with (streams / "sources.py").open("a") as sources:
        sources.write("SOURCES += (Source(**{**vars(SOURCES[1]), 'name': 'orders'}),)")
    text = (streams / f"{stream}.py").read_text()
    (streams / "order_counts.py").write_text(text.replace('"user_events"', '"orders"'))
    ended = lambda: api.dag(dag) and [run for run in api.dag_runs(dag) if run["state"] == "success"]
    wait_for("run of the new stream", ended)
    result["pools"] = {pool["name"]: pool["slots"] for pool in api.call("GET", "/api/v2/pools")["pools"]}

with airflow(lake, any_free_port()) as (parts, api):
    landing.mkdir(parents=True)
    start_background(parts, api)
    wait_for("watch", watchers)
    # One of the schedule is due, and would take along what lands.
    wait_for("first run", lambda: [run for run in api.dag_runs(dag) if run["state"] == "success"])
    for scene in (a_burst, a_pause, a_dead_triggerer, a_failing_run, a_backfill, a_new_stream):
        scene()
    result["runs"] = len(started())
    result["asked"] = [(event["timestamp"], event["extra"]["payload"]["waiting"][:2]) for event in arrivals()]
    print("RESULT", json.dumps(result), flush=True)
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return made_lake(str(tmp_path_factory.mktemp("arrival") / "lake"))


@pytest.fixture(scope="module")
def played(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One Airflow in which all happens, one thing after the other."""
    changes = {
        f"include/streams/{STREAM}.py": (
            'schedule="0 * * * *",',
            'schedule="0 0 * * *", on_arrival=timedelta(seconds=10),',
        ),
        "include/observe/arrival.py": ("AGAIN_SECONDS = 600.0", f"AGAIN_SECONDS = {AGAIN}"),
    }
    project = project_without_jvm(tmp_path_factory.mktemp("project"), changes=changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD", "10")
        patch.setenv("AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL", "5")
        return run_in(project, PLAY + SCENES, lake.root, STREAM, str(BURST), TODAY.isoformat())


def test_a_burst_is_a_run_or_two(played):
    assert played["burst"]["done"] == BURST
    assert played["burst"]["runs"] <= 2


def test_what_comes_during_a_pause_starts_a_run_behind_it(played):
    assert played["paused"] == {"runs": 0}


def test_a_killed_triggerer_is_told_of_and_the_next_one_starts_what_it_has_not(played):
    assert played["page"] == {"alive": False, "dead": True}
    assert played["dead"] == {"runs": 0}


def test_a_failing_run_is_started_again_and_not_at_once(played):
    assert played["failing"] == {"missing": 0}  # the first has ingested it: it waits in bronze
    asked = sorted((datetime.fromisoformat(at), waiting) for at, waiting in played["asked"])
    again = [b[0] - a[0] for a, b in pairwise(asked) if a[1] == b[1]]
    assert min(again) >= timedelta(seconds=AGAIN - 1)
    assert played["runs"] <= len(asked)


def test_a_start_waits_for_a_backfill_whose_runs_have_their_intervals(played):
    assert (played["backfill"]["beside"], played["backfill"]["left"]) == (0, 1)
    days = [TODAY - timedelta(days=number) for number in (3, 2)]
    found = sorted(
        (state, datetime.fromisoformat(start), datetime.fromisoformat(end))
        for state, start, end in played["backfill"]["runs"]
    )
    assert found == [("success", day, day + timedelta(days=1)) for day in days]


def test_a_stream_of_a_new_source_is_put_beside_the_others_while_airflow_runs(played):
    """Nothing is registered or restarted."""
    pools = {"source_orders", "stream_order_counts", "source_user_events", f"stream_{STREAM}"}
    assert {name: played["pools"].get(name) for name in pools} == dict.fromkeys(pools, 1)


@pytest.mark.usefixtures("played")
def test_in_the_end_all_is_in_the_table(lake):
    assert read_done(lake, "user_events").count == BURST + 4
    until_us = micros_of(last_run(lake, STREAM)["until"])
    assert table_rows(lake, STREAM) == oracle_rows(lake, stream_named(STREAM), until_us)
