"""The runs that `make run` waits for, one of each stream's Dag.

A run of this start: one that the scheduler made because it was due, or else one
triggered here. Never both, and never one left over from an earlier start.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from include.airflow.api import AirflowApi, AirflowFailedError

Say = Callable[[str], None]

SECONDS_BETWEEN_LOOKS = 1.0
# Parsing is done within seconds of the start; on a loaded machine within a minute.
PARSE_DEADLINE = 300.0
FINAL = ("success", "failed")
# For the scheduler to make a run that is due: seconds, unless someone has set it otherwise.
DUE_DEADLINE = 120.0


@dataclass(frozen=True)
class Run:
    dag_id: str
    run_id: str

    @property
    def name(self) -> str:
        """The stream's, for people."""
        return self.dag_id.removeprefix("stream_")


class FirstRuns:
    """The first runs after `started_at`; `look` is called between polls and may raise."""

    def __init__(
        self, api: AirflowApi, started_at: datetime, say: Say, look: Callable[[], None]
    ) -> None:
        self._api = api
        self._started_at = started_at
        self._say = say
        self._look = look

    def start(self, dag_id: str) -> Run | None:
        """The run of `dag_id` to wait for; None when a person has paused the Dag."""
        dag = self._wait_until_parsed(dag_id)
        if dag["is_paused"]:
            self._say(f"{dag_id}: paused in Airflow, not run")
            return None
        self._fail_interrupted(dag_id)
        deadline = time.monotonic() + DUE_DEADLINE
        while _is_due(dag) and not self._runs_of_this_start(dag_id) and time.monotonic() < deadline:
            self._pause()
            dag = self._api.get(f"dags/{dag_id}")
        runs = self._runs_of_this_start(dag_id)
        # The same name in all Dags, as the scheduler's have: those of a source share a JVM.
        name = f"manual__{self._started_at.isoformat()}"
        run = Run(dag_id, runs[0]["dag_run_id"] if runs else self._api.trigger(dag_id, name))
        self._say(f"{run.name}: running")
        return run

    def wait(self, runs: Sequence[Run]) -> list[str]:
        """Return when all have ended: what failed."""
        waiting = list(runs)
        failures = []
        while waiting:
            for run in list(waiting):
                state = self._api.dag_run(run.dag_id, run.run_id)["state"]
                if state in FINAL:
                    waiting.remove(run)
                    self._say(f"{run.name}: {'done' if state == 'success' else 'failed'}")
                if state == "failed":
                    failures.append(self._failure(run))
            if waiting:
                self._pause()
        return failures

    def _wait_until_parsed(self, dag_id: str) -> dict[str, Any]:
        """The Dag as this start has parsed it: the database may hold an older one."""
        deadline = time.monotonic() + PARSE_DEADLINE
        while time.monotonic() < deadline:
            dag: dict[str, Any] | None = self._api.find(f"dags/{dag_id}")
            if (
                dag
                and dag["last_parsed_time"]
                and _instant(dag["last_parsed_time"]) > self._started_at
            ):
                return dag
            for error in self._api.get("importErrors")["import_errors"]:
                if _instant(error["timestamp"]) > self._started_at:
                    raise AirflowFailedError(
                        f"{error['filename']}: {error['stack_trace']}", subject=error["filename"]
                    )
            self._pause()
        raise AirflowFailedError(
            f"Airflow has not found {dag_id} in dags/ within {PARSE_DEADLINE:.0f} s", subject=dag_id
        )

    def _fail_interrupted(self, dag_id: str) -> None:
        """Close runs that an earlier stop cut off: Airflow would wait minutes for their tasks.

        Nothing is lost with them; the next run continues from the lake.
        """
        for run in self._api.dag_runs(dag_id):
            if run["state"] == "running" and not self._is_of_this_start(run):
                note = "cut off when Airflow was stopped; the next run continues from the lake"
                self._api.fail_run(dag_id, run["dag_run_id"], note)

    def _runs_of_this_start(self, dag_id: str) -> list[dict[str, Any]]:
        return [run for run in self._api.dag_runs(dag_id) if self._is_of_this_start(run)]

    def _is_of_this_start(self, run: dict[str, Any]) -> bool:
        return bool(run["queued_at"]) and _instant(run["queued_at"]) > self._started_at

    def _failure(self, run: Run) -> str:
        tasks = self._api.task_instances(run.dag_id, run.run_id)
        failed = ", ".join(task["task_id"] for task in tasks if task["state"] == "failed")
        return f"{run.dag_id} failed, by its tasks {failed or '(none)'}: the UI has their logs"

    def _pause(self) -> None:
        self._look()
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _is_due(dag: dict[str, Any]) -> bool:
    """Whether the scheduler is about to make a run of this Dag by itself."""
    due_at = dag["next_dagrun_run_after"]
    return due_at is not None and _instant(due_at) <= datetime.now(UTC)


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
