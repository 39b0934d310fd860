"""A service's process: started under the small init, stopped and killed as an engine does it."""

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from include.lake.process_tree import wait_until
from include.settings import PROJECT
from tests.rehearsal.compose_file import Service

# To kill what is left and bury it: the kernel needs no longer for a few gigabytes.
KILL_PATIENCE = 30.0
START_PATIENCE = 60.0
INIT = (sys.executable, "-m", "tests.rehearsal.container_init")


@dataclass(frozen=True)
class Folders:
    """Where the rehearsal keeps what it writes."""

    root: Path

    def log(self, service: str) -> Path:
        return self.root / "logs" / f"{service}.log"

    def pid_file(self, service: str) -> Path:
        return self.root / "run" / f"{service}.pid"

    @property
    def volumes(self) -> Path:
        return self.root / "volumes"

    def make(self) -> None:
        for name in ("logs", "run", "volumes", "home"):
            (self.root / name).mkdir(parents=True, exist_ok=True)


class ServiceProcess:
    """One life of a service, from a start to its end."""

    def __init__(self, service: Service, environment: Mapping[str, str], folders: Folders) -> None:
        self.service = service
        self.started = time.monotonic()
        self._pid_file = folders.pid_file(service.name)
        self._pid_file.unlink(missing_ok=True)
        command = (*service.entrypoint, *service.command)
        with folders.log(service.name).open("ab") as log:
            self._init = subprocess.Popen(
                [*INIT, str(self._pid_file), str(service.working_dir), *command],
                cwd=PROJECT,  # of init alone, for its imports
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal reaches only the rehearsal, which stops in its own order.
                start_new_session=True,
            )

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._init.poll()

    def main_pid(self) -> int:
        """The process that the service's command became."""
        wait_until(
            lambda: self._pid_file.exists() and bool(self._pid_file.read_text()), START_PATIENCE
        )
        return int(self._pid_file.read_text())

    def kill_main(self) -> None:
        """As the kernel's out-of-memory killer would."""
        os.kill(self.main_pid(), signal.SIGKILL)

    def ask_to_stop(self) -> None:
        name = self.service.stop_signal or "SIGTERM"
        if self.exit_code() is None:
            self.main_pid()  # before it knows its child, init would end without it
            self._init.send_signal(signal.Signals[name])

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within `seconds`."""
        return wait_until(lambda: self.exit_code() is not None, seconds)

    def kill(self) -> None:
        """Everything of it, at once."""
        if self._init.stdin is not None and not self._init.stdin.closed:
            self._init.stdin.close()
        self.wait(KILL_PATIENCE)

    def memory(self, processes: "ProcessTable") -> "Memory":
        """Resident now, of all its processes; what they share is counted for each."""
        return processes.memory_below(self._init.pid)


@dataclass(frozen=True)
class Memory:
    """Bytes of a service's Java processes, and of all others."""

    java: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        return self.java + self.other


class ProcessTable:
    """All processes of the machine at one instant: to list them once for each service is dear."""

    def __init__(self) -> None:
        self._children: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for process in psutil.process_iter(["pid", "ppid", "name", "memory_info"]):
            self._children[process.info["ppid"]].append(process.info)

    def memory_below(self, pid: int) -> Memory:
        java = other = 0
        waiting = list(self._children[pid])
        while waiting:
            process = waiting.pop()
            waiting += self._children[process["pid"]]
            # None of a process that has ended since it was listed.
            resident = process["memory_info"].rss if process["memory_info"] else 0
            if process["name"] == "java":
                java += resident
            else:
                other += resident
        return Memory(java, other)
