from datetime import timedelta

import pytest

from include.fold.testing.cases import Happened, run
from include.fold.testing.check import check_fold
from include.streams.service_health import Health, HealthChange, LogLine, define

SILENCE_US = 300_000_000
STALE_AFTER = timedelta(microseconds=SILENCE_US)
FOLD = define(stale_after=STALE_AFTER, time="event")
LINE = Happened(LogLine("api"), 1_000)  # the record does not hold its time


def test_a_service_is_stale_when_no_line_has_come_in_time():
    ran = run(FOLD, [LINE])
    assert (ran.outputs, ran.timeouts) == ([], {"api": 1_000 + SILENCE_US})
    ran = run(FOLD, [], state=ran, clock=1_000 + SILENCE_US)
    assert ran.outputs == [HealthChange("api", "stale")]
    assert ran.states == {"api": Health(stale=True)}


def test_it_is_ok_again_with_its_next_line():
    ran = run(FOLD, [LINE], state={"api": Health(stale=True)})
    assert ran.outputs == [HealthChange("api", "ok")]


def test_a_line_exactly_at_the_timeout_is_in_time():
    ran = run(FOLD, [LINE, Happened(LogLine("api"), 1_000 + SILENCE_US)])
    assert ran.outputs == []


@pytest.mark.parametrize("time", ["event", "processing"])
def test_no_cut_of_the_input_changes_what_is_reported(time):
    check_fold(define(stale_after=STALE_AFTER, time=time))
