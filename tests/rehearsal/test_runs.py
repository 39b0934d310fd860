"""When a run counts as under way, and which runs are waited for after it was disturbed."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from include.airflow import first_runs
from include.registry import stream_named
from tests.rehearsal import runs as rehearsal_runs
from tests.rehearsal.runs import DagRuns, RehearsalError

COUNTS = stream_named("user_counts")


class FakeAirflow:
    """Runs by their ids; one that is triggered and not known has ended at once."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.waited_for: set[str] = set()

    def find(self, path: str) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat()
        return {"last_parsed_time": now, "is_paused": False, "next_dagrun_run_after": None}

    def trigger_once(self, dag_id: str, run_id: str) -> None:
        self.states.setdefault(run_id, "success")

    def trigger(self, dag_id: str, run_id: str) -> str:
        self.states["first"] = "running"
        return "first"

    def dag_runs(self, dag_id: str) -> list[dict[str, Any]]:
        return [
            {"dag_run_id": run, "state": s, "queued_at": None} for run, s in self.states.items()
        ]

    def fail_run(self, dag_id: str, run_id: str, note: str) -> None:
        self.states[run_id] = "failed"

    def dag_run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        self.waited_for.add(run_id)
        return {"state": self.states[run_id]}

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        return [{"task_id": "run_stream", "state": self.states[run_id], "try_number": 1}]

    def log_lines(self, dag_id: str, run_id: str, task_id: str, attempt: int) -> list[str]:
        return [f"why {task_id} of {run_id} failed"]


class FakeSpark:
    def is_running(self, application: str) -> bool:
        return application == "run_stream-user_counts"


class FakeLanding:
    """Parts that each make the stream plan a batch."""

    def __init__(self, checkpoint: Path, parts: int) -> None:
        self.left = parts
        self._offsets = checkpoint / "offsets"

    def has_next(self, source: str) -> bool:
        return self.left > 0

    def land_next(self, source: str) -> None:
        self.left -= 1
        self._offsets.mkdir(parents=True, exist_ok=True)
        (self._offsets / "0").touch()


@pytest.fixture
def airflow(monkeypatch) -> FakeAirflow:
    monkeypatch.setattr(first_runs, "SECONDS_BETWEEN_LOOKS", 0)
    monkeypatch.setattr(rehearsal_runs, "SECONDS_BETWEEN_LOOKS", 0)
    return FakeAirflow()


def made(airflow: FakeAirflow, lake, parts: int) -> tuple[DagRuns, FakeLanding]:
    landing = FakeLanding(Path(lake.checkpoint("user_counts", 1)), parts)
    runs = DagRuns(airflow, FakeSpark(), lake, landing, lambda line: None)  # type: ignore[arg-type]
    return runs, landing


def test_a_scheduled_run_that_took_the_rows_is_disturbed_and_waited_for_too(airflow, lake):
    runs, landing = made(airflow, lake, parts=3)
    airflow.states = {"scheduled": "running", "rehearsal__1": "queued"}
    seen = []

    def disturb() -> None:
        seen.append(dict(airflow.states))
        airflow.states = dict.fromkeys(airflow.states, "success")

    runs.disturb(COUNTS, disturb)
    assert seen == [{"scheduled": "running", "rehearsal__1": "queued"}]
    assert airflow.waited_for >= {"scheduled", "rehearsal__1"}
    assert landing.left == 2


def test_a_first_run_that_is_under_way_is_disturbed_without_landing_more(airflow, lake):
    runs, landing = made(airflow, lake, parts=1)
    landing.land_next("user_events")
    runs.begin([COUNTS], datetime(2026, 1, 1, tzinfo=UTC))
    runs.disturb(COUNTS, lambda: airflow.states.update(first="success"))
    assert airflow.states == {"first": "success"}


def test_runs_that_are_over_too_soon_are_tried_again_until_no_part_is_left(airflow, lake):
    runs, landing = made(airflow, lake, parts=3)
    with pytest.raises(RehearsalError, match="no run of user_counts could be seen"):
        runs.disturb(COUNTS, lambda: pytest.fail("nothing was running"))
    assert (landing.left, len(airflow.states)) == (0, 3)


def test_a_run_that_failed_after_it_was_disturbed_is_an_error(airflow, lake):
    runs, _ = made(airflow, lake, parts=1)
    airflow.states = {"rehearsal__1": "running"}

    def break_it() -> None:
        airflow.states["rehearsal__1"] = "failed"

    with pytest.raises(RehearsalError, match="why run_stream of rehearsal__1 failed"):
        runs.disturb(COUNTS, break_it)
