"""The supervisor of chaos: which ends of a driver are kills, and which are wrong."""

import signal
import sys

import pytest

from tests.chaos import __main__ as chaos
from tests.chaos.driver import KILLS
from tests.chaos.plan import plan_of

END = "import os, sys; from pathlib import Path; kills = Path(sys.argv[1], 'kills'); "
NOTED = "kills.open('a').write('all, before write 1\\n'); "
KILLED = "os.kill(os.getpid(), 9)"
# Is killed twice, and done then.
TWICE = f"done = len(kills.read_text().splitlines()) == 2; {NOTED} done or {KILLED}"


def drive(tmp_path, program: str) -> str:
    (tmp_path / KILLS).touch()
    return chaos.drive([sys.executable, "-c", END + program, str(tmp_path)], tmp_path)


def test_a_driver_that_is_killed_is_followed_by_another(tmp_path):
    assert drive(tmp_path, TWICE) == ""


@pytest.mark.parametrize(
    ("program", "said"),
    [
        pytest.param(KILLED, f"ended with {-signal.SIGKILL}", id="a kill that nobody noted"),
        pytest.param(f"{NOTED} sys.exit('wrong table')", "wrong table", id="an error"),
        pytest.param("sys.exit(3)", "ended with 3", id="a JVM that nobody killed"),
    ],
)
def test_any_other_end_is_wrong(tmp_path, program, said):
    assert said in drive(tmp_path, program)


@pytest.mark.e2e
@pytest.mark.spark
def test_a_seed_is_killed_and_right():
    result = chaos.run_seed(plan_of(2, steps=4))
    assert result.wrong == ""
    assert result.kills["all"]
