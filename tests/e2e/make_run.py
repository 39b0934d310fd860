"""`make run` as a person starts it, in a fresh copy: what tests of it have in common."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.lake.paths import Lake
from include.registry import all_streams

ROOT = Path(__file__).resolve().parents[2]
WHAT_RUN_NEEDS = ("Makefile", "stateful", "requirements.txt", "include", "dags", "spark_jobs")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Project:
    """A copy of the project with what `make run` would find after a clone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.home = folder / "home"
        self.home.mkdir()
        self.folder.mkdir()
        self.lake = Lake(str(self.folder / "lake"))
        for name in WHAT_RUN_NEEDS:
            source, target = ROOT / name, self.folder / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, target)

    def make_run(self, *variables: str) -> subprocess.Popen[str]:
        """`make run` in a session of its own, as a terminal would have it."""
        environment = {name: value for name, value in os.environ.items() if name != "LAKE"}
        environment.pop("MAKEFLAGS", None)
        return subprocess.Popen(
            ["make", "run", f"PORT={free_port()}", *variables],
            cwd=self.folder,
            env=environment | {"HOME": str(self.home), "PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def table_versions(self) -> list[int]:
        return [DeltaTable(self.lake.table(stream.name)).version() for stream in all_streams()]


def read_until(process: subprocess.Popen[str], line: str) -> str:
    """What the process says up to `line`; fails with all of it when it ends before."""
    said = []
    assert process.stdout is not None
    for each in process.stdout:
        said.append(each)
        if line in each:
            return "".join(said)
    pytest.fail(f"ended without {line!r}:\n{''.join(said)}")


def interrupt(process: subprocess.Popen[str]) -> str:
    """Ctrl-C: the terminal sends it to the whole process group. What is said after it."""
    os.killpg(process.pid, signal.SIGINT)
    return process.communicate(timeout=120)[0]
