from include.fold.testing.cases import run
from include.fold.testing.check import check_fold
from include.streams.user_counts import FOLD, Total, UserCount, UserEvent


def test_each_user_has_one_row_with_the_count_so_far():
    ran = run(FOLD, [UserEvent("ann", 1), UserEvent("bob", 2), UserEvent("ann", 3)])
    assert ran.outputs == [UserCount("bob", 1), UserCount("ann", 2)]


def test_the_count_goes_on_from_the_state():
    ran = run(FOLD, [UserEvent("ann", 1)], state={"ann": Total(41)})
    assert ran.states == {"ann": Total(42)}


def test_a_late_event_is_not_counted():
    late = UserEvent("ann", 999)
    ran = run(FOLD, [UserEvent("ann", 1_000)], late=[late])
    assert ran.late == [late]
    assert ran.states == {"ann": Total(1)}


def test_no_cut_of_the_input_changes_a_count():
    check_fold(FOLD)
