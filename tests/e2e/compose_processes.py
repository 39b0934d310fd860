"""The services of docker-compose.yaml as processes of this machine: commands, environment, health checks.

Another are names of services and addresses (loopback), ports (free ones), folders (below one), and
the database (SQLite): PostgreSQL and the second worker are left out.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

from include.airflow.local_airflow import interrupt_me_with_parent
from include.lake.lease import wait_until
from tests.compose import SERVICES, VARIABLE
from tests.e2e.make_run import free_ports, processes_of

LEFT_OUT = {"postgres", "spark-worker-2"}
PORTS = sorted({port for service in SERVICES.values() for port in service.get("expose", ())})
DEADLINE_S = 300.0
# In place of PostgreSQL, as `make run` has it.
SQLITE = {
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:////opt/stateful-lake/.airflow/airflow.db",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "include.airflow.environment.CONNECT_ARGS",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS_ASYNC": "include.airflow.environment.CONNECT_ARGS",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_SESSION_MAKER": "include.airflow.environment.session_maker",
}
WHERE = {
    "127.0.0.1": rf"0\.0\.0\.0|(?<![\w.-])(?:{'|'.join(SERVICES.keys() - LEFT_OUT)})(?![\w-])",
    "{project}": "/opt/stateful-lake",
    "{folder}/lake": r"(?<!\w)/lake\b",
    "{folder}/work": "/spark-work",
}


class Place(NamedTuple):
    """The folder of all that is written, the copy of the project in it, and what stands for the file's ports."""

    folder: Path
    project: Path
    ports: Mapping[str, int]

    def here(self, text: Any, variables: Mapping[str, str]) -> str:
        """A word of the file as it is on this machine."""
        text = str(text)
        for target, pattern in WHERE.items():
            text = re.sub(pattern, target.format(folder=self.folder, project=self.project), text)
        text = re.sub(rf"\b({'|'.join(PORTS)})\b", lambda match: str(self.ports[match[1]]), text)
        return VARIABLE.sub(lambda match: variables.get(match[1]) or match[3], text)

    def left(self) -> dict[int, str]:
        """The processes of the services, and theirs, that run."""
        return processes_of(self.project, "SPARK_CONF_DIR")


class Service:
    """One service's process, from its start on."""

    def __init__(self, name: str, place: Place, variables: Mapping[str, str]) -> None:
        described = SERVICES[name]
        self.name = name
        self._log = place.folder / f"{name}.log"
        self._check = [
            place.here(word, variables)
            for word in described.get("healthcheck", {}).get("test", ())[1:]
        ]
        self._given: dict[str, Any] = {"cwd": place.project, "stdin": subprocess.DEVNULL}
        self._given["env"] = base_environment(place.folder) | {
            key: place.here(value, variables)
            for key, value in (described["environment"] | SQLITE).items()
            if value is not None
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [place.here(word, variables) for word in described["command"]],
                **self._given,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=interrupt_me_with_parent,
            )

    def wait_until_up(self) -> None:
        """Until it is healthy by its own check, or, where it has none, has done its work."""
        assert wait_until(self._is_up, DEADLINE_S, interval=1.0), self.said()

    def check_alive(self) -> None:
        assert self.process.poll() is None, self.said()

    def said(self) -> str:
        return f"{self.name}: {self._log.read_text(errors='replace')[-5000:]}"

    def _is_up(self) -> bool:
        if not self._check:
            assert self.process.wait(DEADLINE_S) == 0, self.said()
            return True
        self.check_alive()
        return subprocess.run(self._check, **self._given, capture_output=True).returncode == 0


def base_environment(folder: Path) -> dict[str, str]:
    """The environment of a container without the file; nothing else of this process comes through."""
    retained = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return retained | {"PATH": programs, "HOME": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def started_services(
    folder: Path, project: Path, variables: Mapping[str, str]
) -> Iterator[tuple[Place, list[Service]]]:
    """All that run on, healthy, in the order of their start; whoever is left is killed."""
    place = Place(folder, project, dict(zip(PORTS, free_ports(len(PORTS)), strict=True)))
    needs = {
        name: service.get("depends_on", {}).keys() - LEFT_OUT
        for name, service in SERVICES.items()
        if name not in LEFT_OUT
    }
    (project / ".airflow").mkdir()  # a volume there
    running: list[Service] = []
    try:
        for name in TopologicalSorter(needs).static_order():
            service = Service(name, place, variables)
            service.wait_until_up()
            if service.process.poll() is None:
                running.append(service)
        yield place, running
    finally:
        for pid in place.left():
            os.kill(pid, 9)
