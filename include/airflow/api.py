"""The few calls of Airflow's REST API that the launcher needs, over the standard library.

REST and not the `airflow` command: each call of that costs five seconds of CPU.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from include.lake.errors import StatefulError

ATTEMPTS = 3
Result = TypeVar("Result")


class AirflowFailedError(StatefulError):
    """A part of Airflow ended or never answered, or a Dag could not be read: the message has what it said."""

    code = "airflow_failed"
    exit_code = 1


def local_opener() -> OpenerDirector:
    """An opener that leaves the machine's proxy alone: these calls go to this machine."""
    return build_opener(ProxyHandler({}))


@dataclass
class AirflowApi:
    """Airflow at `url`; `log_in` first, except for `health`."""

    url: str
    token: str = ""

    def health(self, path: str = "/api/v2/monitor/health") -> dict[str, Any] | None:
        """The state of each component; None while the server does not answer."""
        try:
            answer: dict[str, Any] = self._call("GET", path)
        except (URLError, ConnectionError, TimeoutError):
            return None
        return answer

    def log_in(self, username: str, password: str) -> None:
        body = {"username": username, "password": password}
        answer = _despite_busy_database(lambda: self._call("POST", "/auth/token", body))
        self.token = answer["access_token"]

    def find(self, path: str, **query: Any) -> Any:
        """What is at `path`; None when there is nothing."""
        try:
            return self.get(path, **query)
        except HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise

    def get(self, path: str, **query: Any) -> Any:
        """What is at `path`; asked again when the server, busy with its database, has failed."""
        address = f"/api/v2/{path}" + (f"?{urlencode(query)}" if query else "")
        return _despite_busy_database(lambda: self._call("GET", address))

    def dag_runs(self, dag_id: str) -> list[dict[str, Any]]:
        """The newest runs of a Dag, backfill runs left out."""
        answer = self.get(f"dags/{dag_id}/dagRuns", order_by="-run_after", limit=50)
        return [run for run in answer["dag_runs"] if run["run_type"] != "backfill"]

    def trigger(self, dag_id: str, run_id: str) -> str:
        """Start a run now; its id."""
        body = {"logical_date": None, "dag_run_id": run_id}
        run = self._call("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)
        return str(run["dag_run_id"])

    def fail_run(self, dag_id: str, run_id: str, note: str) -> None:
        body = {"state": "failed", "note": note}
        self._call("PATCH", f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}", body)

    def dag_run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        run: dict[str, Any] = self.get(f"dags/{dag_id}/dagRuns/{quote(run_id)}")
        return run

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        answer = self.get(f"dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances")
        return list(answer["task_instances"])

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data=data, headers=headers, method=method)  # noqa: S310 (our own address)
        with local_opener().open(request, timeout=60) as response:
            return json.load(response)


def _despite_busy_database(call: Callable[[], Result]) -> Result:
    """`call`, again when the server, busy with its database, has failed. It must be repeatable."""
    for _ in range(ATTEMPTS - 1):
        try:
            return call()
        except TimeoutError:
            continue
        except HTTPError as error:
            if error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
    return call()
