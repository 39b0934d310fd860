from include.fold.testing.cases import run
from include.fold.testing.check import check_fold
from include.streams.streak_alerts import STREAM, Longest, Record, Streak

FOLD = STREAM.fold


def streaks(*lengths: int) -> list[Streak]:
    return [Streak("ann", at_us, length) for at_us, length in enumerate(lengths, 1)]


def test_only_a_streak_that_is_longer_than_all_before_alerts():
    ran = run(FOLD, streaks(5, 7, 6, 7, 8))
    assert ran.outputs == [Record("ann", 5, 0), Record("ann", 7, 5), Record("ann", 8, 7)]


def test_a_short_one_alerts_of_nothing_and_is_remembered():
    ran = run(FOLD, streaks(4))
    assert (ran.outputs, ran.states) == ([], {"ann": Longest(4)})


def test_no_cut_of_the_input_changes_an_alert():
    check_fold(FOLD)
