"""Airflow started by `make run`: what it is told, and what it leaves behind. See tests/e2e."""

import json
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from include.airflow import environment as module
from include.airflow.environment import airflow_environment, refuse_taken
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


def test_airflow_is_told_everything_and_writes_below_the_project(lake):
    environment = airflow_environment({"PATH": "/bin", "HOME": "/home/x"}, lake, 8123, 8124)
    ours = {name: value for name, value in environment.items() if name.startswith("AIRFLOW")}
    assert not [name for name, value in ours.items() if "/home/x" in value]
    assert ours["AIRFLOW_HOME"] == f"{ROOT}/.airflow"
    assert ours["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:8124/execution/"
    assert environment["LAKE"] == lake.root


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """Airflow's folder, which all may read until then."""
    home = tmp_path / ".airflow"
    home.mkdir(mode=0o755)
    monkeypatch.setattr(module, "HOME", home)
    monkeypatch.setattr(module, "PASSWORDS", home / "passwords.json")
    return home


@pytest.mark.parametrize("before", [None, '{"admin": "kept"}'])
def test_airflows_folder_and_password_are_its_owners_alone(home, before):
    if before is not None:
        module.PASSWORDS.touch(0o600)
        module.PASSWORDS.write_text(before)
    module.make_private_home()
    made = module.admin_password()
    assert module.admin_password() == made
    assert made == "kept" if before else len(made) >= 20
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE(module.PASSWORDS.stat().st_mode) == 0o600


def test_a_password_is_made_beside_those_of_others(home):
    module.PASSWORDS.write_text('{"ann": "hers"}')
    made = module.admin_password()
    assert json.loads(module.PASSWORDS.read_text()) == {"ann": "hers", "admin": made}


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
