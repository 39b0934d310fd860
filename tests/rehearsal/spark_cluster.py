"""The Spark master's own view of its workers and applications."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.error import URLError

from include.airflow.api import local_opener


@dataclass(frozen=True)
class SparkCluster:
    """The cluster whose master serves its page at `url`."""

    url: str

    def is_running(self, application: str) -> bool:
        """Whether an application of that name has executors' cores now."""
        return any(
            app["name"] == application and app["state"] == "RUNNING"
            for app in self._state()["activeapps"]
        )

    def alive_workers(self) -> list[dict[str, Any]]:
        return [worker for worker in self._state()["workers"] if worker["state"] == "ALIVE"]

    def busy_ports(self) -> list[int]:
        """The ports of the workers that run executors."""
        return [int(worker["port"]) for worker in self.alive_workers() if worker["coresused"]]

    def _state(self) -> dict[str, Any]:
        try:
            with local_opener().open(f"{self.url}/json/", timeout=10) as answer:
                state: dict[str, Any] = json.load(answer)
        except (URLError, ConnectionError, TimeoutError):
            return {"activeapps": [], "workers": []}  # it is down: nothing runs that it knows of
        return state
