"""What a run or a command found is told, whatever else ran before somebody looked."""

from datetime import timedelta

import pytest

from include.lake.ops import append_ops, read_ops
from tests.observe.lakes import Told

OPENED, CLOSED = "opened", "closed"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def told(lake):
    """A stream that has run, and been looked at, without a finding."""
    told = Told(lake)
    told.run()
    assert told.look() == []
    return told


@pytest.mark.parametrize(
    "name", ["rows_dead_lettered", "data_check_warning", "key_dead_lettered_again"]
)
@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_what_the_first_of_two_runs_of_one_dag_run_found_is_told(told, outcome, name):
    """A leader's JVM took the stream along and then more had come; or Airflow tried again."""
    told.run((name, "warning"), outcome=outcome, is_checked=False)
    told.hour += 1
    told.run()
    assert told.look([]) == [(OPENED, "device_signals", name)]
    assert told.look([]) == [(CLOSED, "device_signals", name)]
    assert told.look([]) == []


def test_what_a_run_by_hand_found_is_told_by_the_next_dag_run(told):
    told.run(("rows_dead_lettered", "warning"))
    told.hour += 1
    told.run()
    assert told.look([]) == [(OPENED, "device_signals", "rows_dead_lettered")]


def test_what_was_given_up_by_hand_before_a_paused_weekend_is_told(told):
    told.ingest()
    told.find([("file_given_up", "warning")], subject="signals")
    told.hour += 49
    told.run()
    assert told.look([]) == [(OPENED, "signals", "file_given_up")]


def test_what_a_check_found_and_the_next_one_did_not_is_nobodys_alert(told):
    told.run(("checkpoint_of_other_times", "error"))
    told.hour += 1
    told.run()
    assert told.look([]) == []


def test_runs_that_found_the_same_are_told_with_the_count_of_both(told):
    for run_id, minutes, count in (("first", 30, 9), ("second", 20, 2)):
        row = {"subject": "device_signals", "run_id": run_id, "finding": "rows_dead_lettered"}
        row |= {"found_at": told.now - minutes * MINUTE, "severity": "warning", "count": count}
        append_ops(told.lake, "findings", [row | {"detail": f"failed for {count} events"}])
    told.run()
    told.look([])
    (row,) = read_ops(told.lake, "alerts").to_pylist()
    assert (row["count"], "9 events" in row["detail"]) == (11, True)
