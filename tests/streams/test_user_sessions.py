from datetime import timedelta

from include.fold.testing.cases import run
from include.fold.testing.check import check_fold
from include.streams.user_sessions import OpenSession, UserEvent, UserSession, define

GAP_US = 100
FOLD = define(gap=timedelta(microseconds=GAP_US))


def test_a_session_is_open_until_its_gap_is_over():
    ran = run(FOLD, [UserEvent("ann", 1_000), UserEvent("ann", 1_060)])
    assert ran.outputs == []
    assert ran.states == {"ann": OpenSession(1_000, 1_060, 2)}
    assert ran.timeouts == {"ann": 1_060 + GAP_US}


def test_the_timeout_closes_a_session_and_removes_it():
    ran = run(FOLD, [UserEvent("ann", 1_000)], clock=1_000 + GAP_US)
    assert ran.outputs == [UserSession("ann", 1_000, 1_000, 1)]
    assert ran.emitted_at_us == [1_000 + GAP_US]
    assert ran.states == {}


def test_an_event_at_the_end_of_the_gap_begins_a_new_session():
    ran = run(FOLD, [UserEvent("ann", 1_000), UserEvent("ann", 1_000 + GAP_US)])
    assert ran.outputs == [UserSession("ann", 1_000, 1_000, 1)]
    assert ran.states == {"ann": OpenSession(1_100, 1_100, 1)}


def test_no_cut_of_the_input_changes_a_session():
    check_fold(define(gap=timedelta(minutes=30)))
