"""`make run` as a person starts it, in a fresh copy: what tests of it have in common."""

import ipaddress
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from include.lake.paths import Lake
from include.registry import all_streams

PROC = Path("/proc")
PORTS = range(20_000, 32_000)
ROOT = Path(__file__).resolve().parents[2]
WHAT_RUN_NEEDS = ("Makefile", "stateful", "requirements.txt", "include", "dags", "spark_jobs")


def free_ports(count: int) -> list[int]:
    """So many different ports that nothing uses.

    Below those that the kernel gives to outgoing calls: one of these could take a port while
    its server is stopped.
    """
    return list(itertools.islice(filter(is_free, random.sample(PORTS, len(PORTS))), count))


def free_port() -> int:
    return free_ports(1)[0]


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def processes_of(project: Path, variable: str = "AIRFLOW_HOME") -> dict[int, str]:
    """The command lines of what runs with this project's folders in its environment, by pid."""
    found = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # ended meanwhile, or another user's
        if f"{variable}={project}/".encode() in environment:
            found[int(folder.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def listeners_of(root: int) -> set[str]:
    """The addresses at which the processes below that one take connections."""
    found = set()
    for process in psutil.Process(root).children(recursive=True):
        with suppress(psutil.Error):  # ended meanwhile
            sockets = process.net_connections("tcp")
            found |= {each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN}
    return found


def is_loopback(address: str) -> bool:
    """A JVM has IPv4's in IPv6."""
    return ipaddress.ip_address(address.removeprefix("::ffff:")).is_loopback


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

    def table_files(self) -> list[list[str]]:
        return [DeltaTable(self.lake.table(stream.name)).file_uris() for stream in all_streams()]


def read_until(process: subprocess.Popen[str], line: str) -> str:
    """The output of the process up to `line`; fails with all of it when it ends before."""
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
