"""Each problem that people are told of: within one schedule, once, and once when it is over."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from include.observe.stream_line import LOST, record_accepted
from tests.observe.lakes import HOUR, STREAM, Report

pytestmark = pytest.mark.slow

OPENED, CLOSED = "opened", "closed"


@pytest.fixture
def told(lake):
    return Report(lake)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_comes_and_goes_each_opening_and_each_end_is_told_once(told, seed):
    chosen = random.Random(seed)
    open_now: set[str] = set()
    told.run()
    assert told.look() == []
    for _ in range(8):
        found = set(
            chosen.sample(["skew", "late_rows", "rss_bytes", "code_changed"], k=chosen.randrange(4))
        )
        kind = chosen.choice(["run", "run", "failed", "unchecked", "none"])
        if kind != "none":
            outcome = "failed" if kind == "failed" else "succeeded"
            checked = kind == "run"
            told.run(*((name, "warning") for name in found), outcome=outcome, is_checked=checked)
            opened = found - open_now
            closed = open_now - found if checked else set()
        else:
            opened, closed = set(), set()
        expected = [(CLOSED, "device_signals", name) for name in closed]
        expected += [(OPENED, "device_signals", name) for name in opened]
        assert told.look() == sorted(expected)
        open_now = (open_now | opened) - closed


def test_a_silent_source_leaves_the_table_behind_its_promise_until_it_sends_again(lake):
    told = Report(lake, replace(STREAM, fresh_within=timedelta(hours=2)))
    told.run()
    assert told.look() == []
    assert told.look() == []
    assert told.look() == [(OPENED, "device_signals", "behind_promise")]
    assert told.look() == []
    told.run()
    assert told.look() == [(CLOSED, "device_signals", "behind_promise")]


def test_the_promise_is_broken_beyond_it_and_not_at_it(lake):
    told = Report(lake, replace(STREAM, fresh_within=timedelta(hours=2)))
    told.run(until=told.now - 2 * HOUR)
    assert told.look() == []
    told.run(until=told.now - 2 * HOUR - timedelta(microseconds=1))
    assert told.look() == [(OPENED, "device_signals", "behind_promise")]


def test_failed_tasks_are_told_with_the_error_of_the_run(told):
    told.run(outcome="failed", is_checked=False)
    assert told.look(["run_stream"]) == [(OPENED, "device_signals", "run_failed")]
    (row,) = told.alert.opened
    assert (row["severity"], "it broke" in row["detail"]) == ("error", True)
    assert told.look(["run_stream"]) == []
    told.run()
    assert told.look([]) == [(CLOSED, "device_signals", "run_failed")]


def test_a_check_beside_a_writing_job_closes_nothing(told):
    told.run(("checkpoint_of_other_times", "error"))
    told.look()
    told.run(("written_while_measured", "info"), is_checked=False)
    assert told.look() == []


def test_what_gets_worse_is_told_again(told):
    told.run(("skew", "warning"))
    told.look()
    told.run(("skew", "error"))
    assert told.look() == [(OPENED, "device_signals", "skew")]
    told.run(("skew", "warning"))
    assert told.look() == []


def test_late_rows_are_over_when_a_restate_has_taken_them_in(told):
    """Nothing of bronze is wrong here, so the record has nothing against the table."""
    told.run(("late_rows", "warning"), ("late_rows_not_restated", "warning"))
    assert told.look() == [(OPENED, "device_signals", "late_rows")]


def test_what_was_found_before_another_stream_took_in_more_is_told_once(lake):
    """Both have a tick. One found a jump; the other's ingestion came before the first one's look."""
    one, two = (Report(lake, replace(STREAM, name=name)) for name in ("one", "two"))
    one.known = two.known  # each subject's is kept with its own Asset
    one.ingest()
    assert one.look() == []
    two.ingest()
    two.hour = 1
    one.ingest()
    one.find([("watermark_jumped", "warning")], "signals/1", subject="signals")
    one.hour = two.hour = 2
    two.ingest()
    jumped = [(change, "signals", "watermark_jumped") for change in (CLOSED, OPENED)]
    assert two.look() == jumped
    assert one.look() == []


def test_a_stream_that_is_called_as_its_source_tells_of_both(lake):
    told = Report(lake, replace(STREAM, name="signals"))
    told.run(("skew", "warning"), ("watermark_jumped", "warning"))
    assert told.look() == [(OPENED, "signals", "skew"), (OPENED, "signals", "watermark_jumped")]


def test_what_is_lost_for_good_is_open_until_somebody_accepts_it(told):
    told.ingest()
    told.find([(name, "warning") for name in LOST], "signals/0", subject="signals")
    told.run()
    assert told.look() == [(OPENED, "signals", name) for name in LOST]
    told.hour += 24 * 40
    told.run()
    assert told.look() == []
    record_accepted(told.lake, "signals")
    assert told.look() == [(CLOSED, "signals", name) for name in LOST]


@pytest.mark.parametrize("hours_ahead", [0, 400 * 24])
def test_what_is_found_after_a_run_whose_clock_was_ahead_is_told(told, hours_ahead):
    told.run()
    assert told.look() == []
    hour = told.hour
    told.hour += hours_ahead
    told.run()
    assert told.look() == []
    told.hour = hour + 1
    told.run(("table_changed", "error"), ("checkpoint_of_other_times", "error"))
    assert {found for _, _, found in told.look()} == {"table_changed", "checkpoint_of_other_times"}
