"""Starts by arrival in a running Airflow: none is lost, and there is no hot loop. Jobs run without a JVM."""

import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from include.fold.admission import micros_of
from include.ingest.ingest_log import read_done
from include.lake.ops import last_run
from include.lake.paths import Lake, made_lake
from include.registry import stream_named
from tests.e2e.make_run import ROOT
from tests.e2e.one_stream import STREAM, project_of_one_stream, run_in
from tests.landed_sql import oracle_rows, table_rows

pytestmark = [pytest.mark.airflow, pytest.mark.e2e, pytest.mark.turn(2)]

AGAIN = 25.0
BURST, DAYS = 50, 3
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
# The job fails while the lake has a file `fail`.
SUBMIT = """#!/bin/sh
test ! -e "$LAKE/fail" || exit 1
exec {python} -m tests.e2e.without_jvm "$@"
"""
PLAY = """
import json, os, signal, sys, time
from datetime import datetime, timedelta, UTC
from pathlib import Path

from include.airflow.environment import any_free_port
from include.airflow.local_airflow import airflow, are_healthy, start_background
from include.ingest.ingest_log import read_done
from include.lake.paths import Lake

lake, (stream, burst, today) = Lake(sys.argv[1]), sys.argv[2:]
dag, landing = f"stream_{stream}", Path(lake.landing("user_events"))
LATEST = time.monotonic() + 1200
result, today = {}, datetime.fromisoformat(today)

def wait_for(what, is_there):
    while not (found := is_there()):
        parts.check_alive()
        if time.monotonic() > LATEST:
            runs = [(run["run_type"], run["state"]) for run in api.dag_runs(dag)]
            sys.exit(f"no {what}: {result}, {runs}, {events()}")
        time.sleep(1.0)
    return found

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
    dates = {"from_date": (today - timedelta(days=3)).isoformat(), "to_date": (today - timedelta(days=2)).isoformat()}
    body = {"dag_id": dag, **dates, "max_active_runs": 1, "reprocess_behavior": "completed",
            "run_backwards": False, "dag_run_conf": {}}
    api.call("POST", "/api/v2/backfills", json=body)
    def backfill(*states):
        runs = api.call("GET", f"/api/v2/dags/{dag}/dagRuns", params={"run_type": "backfill"})["dag_runs"]
        return [run for run in runs if run["run_type"] == "backfill" and run["state"] in states]
    wait_for("backfill", lambda: backfill("running"))
    land("meanwhile")
    wait_for("event beside the backfill", lambda: len(arrivals()) > asked)
    result["backfill"] = {"beside": len(started("success")) - before, "left": len(backfill("running"))}
    set_places(1)
    wait_for("end of the backfill", lambda: not backfill("running", "queued"))
    wait_for("run after the backfill", lambda: runs_one_more(before, files))
    result["backfill"]["runs"] = [
        [run["state"], run["data_interval_start"], run["data_interval_end"]] for run in backfill("success", "failed")
    ]

with airflow(lake, any_free_port()) as (parts, api):
    landing.mkdir(parents=True)
    start_background(parts, api)
    wait_for("watch", watchers)
    # One of the schedule is due, and would take along what lands.
    wait_for("first run", lambda: [run for run in api.dag_runs(dag) if run["state"] == "success"])
    for scene in (a_burst, a_pause, a_dead_triggerer, a_failing_run, a_backfill):
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
    project = project_of_one_stream(tmp_path_factory.mktemp("project"))
    (project / "tests").symlink_to(ROOT / "tests")
    (project / "dags" / "table_maintenance.py").unlink()  # due at once, in a new database
    submit = project / "include" / "bin" / "spark-submit-with-parent"
    submit.write_text(SUBMIT.format(python=sys.executable))
    changes = {
        f"include/streams/{STREAM}.py": (
            'schedule="0 * * * *",',
            'schedule="0 0 * * *", on_arrival=timedelta(seconds=10),',
        ),
        "include/observe/arrival.py": ("AGAIN_SECONDS = 600.0", f"AGAIN_SECONDS = {AGAIN}"),
        "dags/spark_task.py": ("retries=2", "retries=0"),
    }
    for name, (before, after) in changes.items():
        text = (project / name).read_text()
        assert text.count(before) == 1
        (project / name).write_text(text.replace(before, after))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD", "10")
        patch.setenv("AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL", "5")
        return run_in(project, PLAY, lake.root, STREAM, str(BURST), TODAY.isoformat())


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


@pytest.mark.usefixtures("played")
def test_in_the_end_all_is_in_the_table(lake):
    assert read_done(lake, "user_events").count == BURST + 4
    until_us = micros_of(last_run(lake, STREAM)["until"])
    assert table_rows(lake, STREAM) == oracle_rows(lake, stream_named(STREAM), until_us)
