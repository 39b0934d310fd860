"""Airflow's REST API while parts of Airflow are stopped and started: asked until it answers."""

import time
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError

from include.airflow.api import AirflowApi

SECONDS_BETWEEN_TRIES = 1.0
# Of one call, in a row: longer than a start of the whole cluster.
OUTAGE_DEADLINE = 300.0
Result = TypeVar("Result")


class RehearsalApi(AirflowApi):
    """As AirflowApi, and what the rehearsal asks for beyond `make run`."""

    def trigger_once(self, dag_id: str, run_id: str) -> None:
        """A manual run of that id; nothing when there is one, as after an answer that was lost."""
        body = {"logical_date": None, "dag_run_id": run_id}
        self._post(f"dags/{dag_id}/dagRuns", body, HTTPStatus.CONFLICT)

    def backfill(self, dag_id: str, start: datetime, until: datetime, conf: dict[str, Any]) -> int:
        """Begin a backfill of all runs from `start` to that at `until`; its id."""
        body = {
            "dag_id": dag_id,
            "from_date": start.isoformat(),
            "to_date": until.isoformat(),
            "dag_run_conf": conf,
            "reprocess_behavior": "completed",
            "max_active_runs": 1,
        }
        return int(self._call("POST", "/api/v2/backfills", body)["id"])

    def _post(self, path: str, body: dict[str, Any], allowed: HTTPStatus) -> None:
        try:
            self._call("POST", f"/api/v2/{path}", body)
        except HTTPError as error:
            if error.code != allowed:
                raise


def patiently(call: Callable[[], Result]) -> Result:
    """`call`, again while the API or its database is away. It must be repeatable."""
    deadline = time.monotonic() + OUTAGE_DEADLINE
    while True:
        try:
            return call()
        except HTTPError as error:
            if error.code < HTTPStatus.INTERNAL_SERVER_ERROR or time.monotonic() > deadline:
                raise
        except (URLError, ConnectionError, TimeoutError, HTTPException):
            if time.monotonic() > deadline:
                raise
        time.sleep(SECONDS_BETWEEN_TRIES)
