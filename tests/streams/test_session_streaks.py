from datetime import timedelta

from include.fold.testing.cases import run
from include.fold.testing.check import check_fold
from include.streams.session_streaks import OpenStreak, Session, Streak, define

WITHIN_US = 100
FOLD = define(within=timedelta(microseconds=WITHIN_US))


def test_a_session_within_the_time_goes_on_with_the_streak():
    ran = run(FOLD, [Session("ann", 1_000, 900), Session("ann", 1_000 + WITHIN_US, 1_050)])
    assert ran.outputs == []
    assert ran.states == {"ann": OpenStreak(900, 2)}


def test_the_timeout_ends_a_streak_and_the_next_session_begins_one():
    ran = run(FOLD, [Session("ann", 1_000, 900), Session("ann", 1_001 + WITHIN_US, 1_050)])
    assert ran.outputs == [Streak("ann", 900, 1)]
    assert ran.emitted_at_us == [1_000 + WITHIN_US]
    assert ran.states == {"ann": OpenStreak(1_050, 1)}


def test_no_cut_of_the_input_changes_a_streak():
    check_fold(define(within=timedelta(hours=2)))
