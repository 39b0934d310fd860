"""Which runs `make run` waits for: exactly one for each Dag, whatever Airflow remembers."""

from datetime import UTC, datetime, timedelta

import pytest

from include.airflow import local_airflow
from include.airflow.local_airflow import FirstRuns, Run
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
        self.dag = {
            "is_paused": paused,
            "last_parsed_time": instant(parsed),
            "next_dagrun_run_after": instant(due),
        }
        self.import_errors: list[dict] = []
        self.run_states = ["success"]
        self.calls: list[tuple] = []

    def find(self, path):
        return self.dag

    def get(self, path):
        return {"import_errors": self.import_errors} if path == "importErrors" else self.dag

    def dag_runs(self, dag_id):
        return self.runs.pop(0) if len(self.runs) > 1 else self.runs[0]

    def dag_run(self, dag_id, run_id):
        return {"state": self.run_states.pop(0)}

    def task_instances(self, dag_id, run_id):
        return [{"task_id": "ingest", "state": "failed"}, {"task_id": "run_stream", "state": None}]

    def trigger(self, dag_id, run_id):
        self.calls.append(("trigger", dag_id))
        return "triggered"

    def fail_run(self, dag_id, run_id, note):
        self.calls.append(("fail", run_id))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(local_airflow, "SECONDS_BETWEEN_LOOKS", 0)


def runs_of(api: FakeApi, said: list | None = None) -> FirstRuns:
    return FirstRuns(api, START, (said if said is not None else []).append, lambda: None)


def test_a_run_is_triggered_when_none_is_due():
    api = FakeApi([dag_run("of yesterday", queued=-9999, state="success")])
    assert runs_of(api).start(DAG) == Run(DAG, "triggered")


def test_a_run_that_is_due_is_awaited_and_no_second_one_made():
    due = FakeApi([], [], [dag_run("scheduled", queued=2)], due=-60)
    assert runs_of(due).start(DAG) == Run(DAG, "scheduled")
    assert due.calls == []


def test_a_due_run_that_never_comes_is_not_awaited_for_ever(monkeypatch):
    monkeypatch.setattr(local_airflow, "DUE_DEADLINE", 0)
    assert runs_of(FakeApi(due=-60)).start(DAG) == Run(DAG, "triggered")


def test_a_run_that_an_earlier_stop_cut_off_is_closed_first():
    api = FakeApi([dag_run("cut off", queued=-60), dag_run("waiting", queued=-60, state="queued")])
    runs_of(api).start(DAG)
    assert api.calls == [("fail", "cut off"), ("trigger", DAG)]


def test_a_dag_that_cannot_be_read_is_said_with_its_traceback(monkeypatch):
    api = FakeApi(parsed=-60)  # the database still has it from an earlier start
    old = {"timestamp": instant(-60), "filename": "dags/old.py", "stack_trace": "old"}
    new = {"timestamp": instant(1), "filename": "dags/streams.py", "stack_trace": "NameError: x"}
    api.import_errors = [old, new]
    with refused("airflow_failed", subject="dags/streams.py"):
        runs_of(api).start(DAG)
