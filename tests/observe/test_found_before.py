"""What a run or a command found is told, whatever else ran before somebody looked."""

import pytest

from tests.observe.lakes import Told

OPENED, CLOSED = "opened", "closed"


@pytest.fixture
def told(lake):
    """A stream that has run, and been looked at, without a finding."""
    told = Told(lake)
    told.run()
    assert told.look() == []
    return told


@pytest.mark.parametrize("name", ["rows_dead_lettered", "data_check_warning"])
@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_what_the_first_of_two_runs_of_one_dag_run_found_is_told(told, outcome, name):
    """A leader's JVM took the stream along and then more had come; or Airflow tried again."""
    told.run((name, "warning"), outcome=outcome, is_checked=False)
    told.hour += 1
    told.run()
    assert told.look() == [(CLOSED, "device_signals", name), (OPENED, "device_signals", name)]
    assert told.look() == []


def test_what_was_given_up_by_hand_before_a_paused_weekend_is_told(told):
    told.ingest()
    told.find([("file_given_up", "warning")], subject="signals")
    told.hour += 49
    told.run()
    passed = [(change, "signals", "file_given_up") for change in (CLOSED, OPENED)]
    assert told.look() == passed
