"""Airflow's parts as processes of this one, started in the order in which they need each other.

Not `airflow standalone`: it starts all at once, so that the first tasks find no API; and it has
one server for people and for tasks, which on SQLite stops both now and then. That server writes
down what a person does in its event loop, and waits there for the database. Who holds it may be a
task's request, which cannot commit before the event loop comes back to it.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from include.airflow.api import AirflowApi, AirflowFailedError
from include.airflow.environment import HOME, HOST, PRIVATE_FILE, PRIVATE_FOLDER, PRIVATE_UMASK
from include.lake.lease import end_descendants, interrupt_me_with_parent, wait_until
from include.settings import PROJECT
from include.spark.local_jobs import say

LOGS = HOME / "parts"
READY_DEADLINE = 600.0
# The scheduler waits for running tasks when asked to stop; a person at Ctrl-C does not.
STOP_PATIENCE = 15.0
LOG_TAIL = 30
BACKGROUND = (
    # Logs are read as files here; a server of them would listen on all interfaces.
    ("scheduler", "--skip-serve-logs"),
    ("dag-processor",),
    ("triggerer", "--skip-serve-logs"),
)
# Its tasks write the lake, which is for others to read if the person's umask says so.
WRITES_THE_LAKE = "scheduler"


class Parts:
    """The parts that run, each with a log of its own."""

    def __init__(self, environment: Mapping[str, str], logs: Path = LOGS) -> None:
        self._environment = dict(environment)
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        logs.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)

    def start(self, name: str, *words: str) -> None:
        """`airflow <words>`, until `stop`."""
        if self.log(name).exists():
            self.log(name).replace(self._logs / f"{name}.log.1")
        self.log(name).touch(PRIVATE_FILE)
        with self.log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "airflow", *words],
                cwd=PROJECT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Its own session: Ctrl-C in the terminal reaches only us, and we pass it on.
                start_new_session=True,
                preexec_fn=interrupt_me_with_parent,
                umask=-1 if name == WRITES_THE_LAKE else PRIVATE_UMASK,
            )

    def finish(self, name: str, *words: str) -> None:
        """`airflow <words>` to its end; AirflowFailedError when it fails."""
        self.start(name, *words)
        process = self._running.pop(name)
        if process.wait() != 0:
            raise AirflowFailedError(
                f"`airflow {' '.join(words)}` failed. {self._tail(name)}", subject=name
            )

    def check_alive(self) -> None:
        """AirflowFailedError with the end of its log for a part that has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise AirflowFailedError(
                    f"Airflow's {name} has ended by itself. {self._tail(name)}", subject=name
                )

    def wait(self) -> NoReturn:
        """Until a part ends by itself, or a signal raises."""
        while True:
            self.check_alive()
            time.sleep(1.0)

    def wait_until(self, is_up: Callable[[], bool]) -> None:
        """AirflowFailedError when a part ends before that, or when it takes too long."""

        def look() -> bool:
            self.check_alive()
            return is_up()

        if not wait_until(look, READY_DEADLINE, interval=1.0):
            raise AirflowFailedError(
                f"Airflow was not ready within {READY_DEADLINE:.0f} s: see {self._logs}"
            )

    def stop(self) -> None:
        """All of them, and whatever they have left behind."""
        say("stopping Airflow")
        for process in self._running.values():
            process.send_signal(signal.SIGINT)
        parts = self._running.values()
        wait_until(lambda: all(part.poll() is not None for part in parts), STOP_PATIENCE)
        left = end_descendants()
        if left:
            say(f"these processes could not be ended: {left}")

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _tail(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").splitlines()[-LOG_TAIL:]
        return "\n".join([f"The end of {self.log(name)}:", *lines])


def start_servers(parts: Parts, api: AirflowApi, port_of_tasks: int) -> None:
    """The database as this version needs it, and who asks about it: people, and tasks."""
    parts.finish("database", "db", "migrate")
    parts.start("server", "api-server", "--apps", "core")
    parts.start(
        "server-of-tasks", "api-server", "--apps", "execution", "--port", str(port_of_tasks)
    )
    api_of_tasks = AirflowApi(f"http://{HOST}:{port_of_tasks}")
    parts.wait_until(lambda: api_of_tasks.health("/execution/health") is not None)
    parts.wait_until(lambda: are_healthy(api, "metadatabase"))


def start_background(parts: Parts, api: AirflowApi) -> None:
    """What makes runs, reads Dags, and waits for people's answers."""
    for words in BACKGROUND:
        parts.start(words[0], *words)
    parts.wait_until(lambda: are_healthy(api, "scheduler", "dag_processor"))


def are_healthy(api: AirflowApi, *components: str) -> bool:
    health = api.health() or {}
    return all(health.get(each, {}).get("status") == "healthy" for each in components)
