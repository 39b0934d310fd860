"""The step before Airflow starts: what it makes, and what it says when it cannot."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from include.docker import check_health, prepare_airflow
from include.docker.compose_env import generated_environment
from include.docker.prepare_airflow import prepare
from include.lake.errors import LakeError, SettingsError
from tests.compose import SERVICES

ROOT = Path(__file__).resolve().parents[2]
MASTER = "spark://spark-master:7077"


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """The environment of the step, as of docker-compose.yaml, with a database in a file."""
    secrets = generated_environment()
    return {
        "LAKE": str(tmp_path / "lake"),
        "SPARK_MASTER": MASTER,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW_ADMIN_PASSWORD": secrets["AIRFLOW_ADMIN_PASSWORD"],
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(tmp_path / "airflow" / "p.json"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
    }


def run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given: dict[str, Any] = {"cwd": ROOT, "env": {"PATH": programs, **environment}}
    command = SERVICES["airflow-init"]["command"]
    return subprocess.run(command, **given, capture_output=True, text=True, check=False)


@pytest.mark.airflow
@pytest.mark.e2e
def test_it_makes_all_that_airflow_needs_and_can_be_repeated(environment, tmp_path):
    for _ in range(2):
        done = run(environment)
        assert done.returncode == 0, done.stdout + done.stderr
    with sqlite3.connect(tmp_path / "airflow.db") as database:
        assert database.execute("SELECT count(*) FROM dag_run").fetchone() == (0,)
    passwords = Path(environment[prepare_airflow.PASSWORDS_FILE])
    assert json.loads(passwords.read_text()) == {"admin": environment["AIRFLOW_ADMIN_PASSWORD"]}
    assert passwords.stat().st_mode & 0o777 == 0o600
    assert environment["AIRFLOW_ADMIN_PASSWORD"] not in done.stdout + done.stderr
    assert (tmp_path / "lake" / "landing").is_dir()


WRONG: dict[str, list[str]] = {
    "SPARK_MASTER": ["", "spark-master:7077"],
    "LAKE": ["/proc/lake", "wasbs://lake@account/x"],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_is_named(environment, name):
    for value in WRONG[name]:
        with pytest.raises((SettingsError, LakeError)) as caught:
            prepare(environment | {name: value})
        assert caught.value.subject in (name, value)
        assert "\n" not in str(caught.value)


def test_passwords_of_other_users_are_kept(environment):
    file = Path(environment[prepare_airflow.PASSWORDS_FILE])
    file.parent.mkdir()
    file.write_text('{"eve": "old", "admin": "old"}')
    prepare_airflow.write_password(environment)
    assert json.loads(file.read_text()) == {
        "eve": "old",
        "admin": environment["AIRFLOW_ADMIN_PASSWORD"],
    }
    assert list(file.parent.iterdir()) == [file]


@pytest.fixture
def answers() -> Iterator[tuple[str, list[bytes]]]:
    """An address, and the list of what it answers next."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(bodies.pop())

        def log_message(self, *args: object) -> None:
            """Not into the output of the tests."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", bodies
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("body", "component", "code"),
    [
        (b'{"scheduler": {"status": "healthy"}}', "scheduler", 0),
        (b'{"scheduler": {"status": "unhealthy"}}', "scheduler", 1),
        (b'{"triggerer": {"status": null}}', "triggerer", 1),
        (b'["scheduler"]', "scheduler", 1),
        (b"<html>", "scheduler", 1),
        (b"", None, 1),
        (b'{"workers": []}', None, 0),
    ],
)
def test_health_is_what_the_service_says(answers, body, component, code, monkeypatch, capsys):
    url, bodies = answers
    bodies.append(body)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert check_health.main(url, component) == code
    assert bool(capsys.readouterr().err) == bool(code)


def test_a_service_that_does_not_answer_is_unhealthy():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert check_health.main(f"http://127.0.0.1:{closed.getsockname()[1]}/json/") == 1
