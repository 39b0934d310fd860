"""Which runs `make run` waits for: exactly one for each Dag, whatever Airflow remembers."""

from datetime import UTC, datetime, timedelta

import pytest

from include.airflow import local_airflow
from include.airflow.local_airflow import FirstRuns
from tests.refused import refused

START = datetime.now(UTC)
DAG = "stream_user_counts"


def instant(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def dag_run(run_id: str, queued: float, state: str = "running") -> dict:
    return {"dag_run_id": run_id, "queued_at": instant(queued), "state": state}


class FakeApi:
    """Airflow's answers; each look at the runs takes one from `runs`, the last stays."""

    def __init__(self, *runs: list, parsed: float = 1, due: float = 3600, paused: bool = False):
        self.runs = list(runs) or [[]]
        self.answer = {
            "is_paused": paused,
            "last_parsed_time": instant(parsed),
            "next_dagrun_run_after": instant(due),
        }
        self.calls: list[tuple] = []

    def dag(self, dag_id):
        return self.answer

    def dag_runs(self, dag_id):
        return self.runs.pop(0) if len(self.runs) > 1 else self.runs[0]

    def trigger(self, dag_id, run_id):
        self.calls.append(("trigger", dag_id))
        return "triggered"

    def fail_run(self, dag_id, run_id, note):
        self.calls.append(("fail", run_id))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(local_airflow, "SECONDS_BETWEEN_LOOKS", 0)


def runs_of(api: FakeApi) -> FirstRuns:
    return FirstRuns(api, START, lambda: None)


def test_a_run_is_triggered_when_none_is_due():
    api = FakeApi([dag_run("of yesterday", queued=-9999, state="success")])
    assert runs_of(api).start(DAG) == "triggered"


def test_a_run_that_is_due_is_awaited_and_no_second_one_made():
    due = FakeApi([], [], [dag_run("scheduled", queued=2)], due=-60)
    assert runs_of(due).start(DAG) == "scheduled"
    assert due.calls == []


def test_a_due_run_that_never_comes_is_not_awaited_for_ever(monkeypatch):
    monkeypatch.setattr(local_airflow, "DUE_DEADLINE", 0)
    assert runs_of(FakeApi(due=-60)).start(DAG) == "triggered"


def test_a_run_that_an_earlier_stop_cut_off_is_closed_first():
    api = FakeApi([dag_run("cut off", queued=-60), dag_run("waiting", queued=-60, state="queued")])
    runs_of(api).start(DAG)
    assert api.calls == [("fail", "cut off"), ("trigger", DAG)]


def test_a_dag_that_is_not_found_is_named(monkeypatch):
    monkeypatch.setattr(local_airflow, "PARSE_DEADLINE", 0)
    with refused("airflow_failed", subject=DAG):
        runs_of(FakeApi(parsed=-60)).start(DAG)  # the database still has it from an earlier start
