"""Airflow started by `make run`: what it is told, its parts as processes, which runs it waits for, and what it
leaves behind. See tests/e2e.
"""

import os
import re
import socket
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from include.airflow import environment, local_airflow
from include.airflow.environment import refuse_taken
from include.airflow.local_airflow import AirflowFailedError, FirstRuns, Parts
from include.lake.lease import wait_until
from tests.refused import refused

ROOT = Path(__file__).resolve().parents[2]


def test_a_port_that_is_taken_is_said_before_anything_starts():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with refused("wrong_setting", subject="PORT"):
            refuse_taken(port)
    refuse_taken(port)


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """Airflow's folder, which all may read until then."""
    home = tmp_path / ".airflow"
    home.mkdir(mode=0o755)
    monkeypatch.setattr(environment, "HOME", home)
    monkeypatch.setattr(environment, "PASSWORDS", home / "passwords.json")
    return home


@pytest.mark.parametrize("before", [None, '{"admin": "kept"}'])
def test_airflows_folder_and_password_are_its_owners_alone(home, before):
    if before is not None:
        environment.PASSWORDS.touch(0o600)
        environment.PASSWORDS.write_text(before)
    environment.make_private_home()
    made = environment.admin_password()
    assert environment.admin_password() == made
    assert made == "kept" if before else len(made) >= 20
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE(environment.PASSWORDS.stat().st_mode) == 0o600


END_ORPHANS = """
import subprocess, sys
from include.airflow.local_airflow import adopt_orphans, end_descendants
adopt_orphans()
# A grandchild in a session of its own that heeds no SIGTERM, and whose parent is gone.
script = "trap '' TERM; echo started; while :; do sleep 1; done"
middle = 'import subprocess, sys; subprocess.Popen(["sh", "-c", sys.argv[1]], start_new_session=True)'
subprocess.run([sys.executable, "-c", middle, script], check=True)
sys.stdin.readline()
print("left", end_descendants(patience=1.0))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_an_orphan_that_heeds_no_sigterm_is_ended_too():
    with subprocess.Popen(
        [sys.executable, "-c", END_ORPHANS],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        # Returns at all only when no process holds the pipe any more.
        assert process.communicate("go\n")[0] == "left []\n"


@pytest.fixture
def parts(tmp_path, monkeypatch) -> Parts:
    """The parts of an Airflow whose command says which part it is, and fails."""
    airflow = tmp_path / "python"
    airflow.write_text('#!/bin/sh\necho "I am $3, umask $(umask)"; exit 1\n')
    airflow.chmod(0o755)
    monkeypatch.setattr(local_airflow.sys, "executable", str(airflow))
    return Parts({"PATH": "/bin:/usr/bin"}, tmp_path / "logs")


def died(parts: Parts) -> bool:
    try:
        parts.check_alive()
    except AirflowFailedError:
        return True
    return False


def test_a_part_that_ends_by_itself_is_named_with_the_end_of_its_log(parts):
    parts.check_alive()
    parts.start("scheduler", "scheduler")
    assert wait_until(lambda: died(parts), 60)
    with refused("airflow_failed", subject="scheduler"):
        parts.check_alive()
    for wait in (parts.wait, lambda: parts.wait_until(lambda: False)):
        with refused("airflow_failed", subject="scheduler"):
            wait()


@pytest.mark.parametrize(("name", "umask"), [("server", 0o077), ("scheduler", 0o022)])
def test_logs_are_their_owners_alone_and_all_that_but_tasks_write(parts, name, umask):
    """Tasks write the lake, as the person's own umask says."""
    before = os.umask(0o022)
    try:
        with refused("airflow_failed", subject=name) as caught:
            parts.finish(name, "x")
    finally:
        os.umask(before)
    assert re.search(rf"I am x, umask 0*{umask:o}\b", str(caught.value))
    assert stat.S_IMODE(parts.log(name).stat().st_mode) == 0o600


START = datetime.now(UTC)
DAG = "stream_user_counts"


def instant(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def dag_run(run_id: str, queued: float, state: str = "running") -> dict:
    return {"dag_run_id": run_id, "queued_at": instant(queued), "state": state}


class FakeApi:
    """Airflow's answers; each look at the runs takes one from `runs`, the last stays."""

    def __init__(self, *runs: list, parsed: float = 1, due: float = 3600, paused: bool = False):
        self.runs = list(runs) or [[]]
        self.answer = {
            "is_paused": paused,
            "last_parsed_time": instant(parsed),
            "next_dagrun_run_after": instant(due),
        }
        self.calls: list[tuple] = []

    def dag(self, dag_id):
        return self.answer

    def dag_runs(self, dag_id):
        return self.runs.pop(0) if len(self.runs) > 1 else self.runs[0]

    def trigger(self, dag_id, run_id):
        self.calls.append(("trigger", dag_id))
        return "triggered"

    def fail_run(self, dag_id, run_id, note):
        self.calls.append(("fail", run_id))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(local_airflow, "SECONDS_BETWEEN_LOOKS", 0)


def runs_of(api: FakeApi) -> FirstRuns:
    return FirstRuns(api, START, lambda: None)


def test_a_run_that_is_due_is_awaited_and_no_second_one_made():
    due = FakeApi([], [], [dag_run("scheduled", queued=2)], due=-60)
    assert runs_of(due).start(DAG) == "scheduled"
    assert due.calls == []


def test_a_stream_behind_others_has_a_run_behind_theirs():
    due = FakeApi([dag_run("scheduled", queued=2)], due=-60)
    assert runs_of(due).start(DAG, is_behind=True) == "triggered"


def test_a_run_that_an_earlier_stop_cut_off_is_closed_first():
    api = FakeApi([dag_run("cut off", queued=-60), dag_run("waiting", queued=-60, state="queued")])
    assert runs_of(api).start(DAG) == "triggered"
    assert api.calls == [("fail", "cut off"), ("trigger", DAG)]


def test_a_dag_that_is_not_found_is_named(monkeypatch):
    monkeypatch.setattr(local_airflow, "PARSE_DEADLINE", 0)
    with refused("airflow_failed", subject=DAG):
        runs_of(FakeApi(parsed=-60)).start(DAG)  # the database still has it from an earlier start
