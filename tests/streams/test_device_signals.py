from include.fold.testing.cases import run
from include.fold.testing.check import check_fold
from include.streams.device_signals import FOLD, Counted, EventsCounted, Signal


def test_there_is_a_row_for_each_signal_with_the_count_so_far():
    ran = run(FOLD, [Signal(7, 2, 50), Signal(7, 1, 60), Signal(8, 3, 70)])
    assert ran.outputs == [EventsCounted(7, 1), EventsCounted(7, 2), EventsCounted(8, 1)]
    assert ran.emitted_at_us == [1, 2, 3]


def test_the_count_goes_on_from_the_state():
    ran = run(FOLD, [Signal(7, 1, 50)], state={7: Counted(41)})
    assert ran.outputs == [EventsCounted(7, 42)]


def test_a_signal_after_the_clock_waits():
    newer = Signal(7, 2, 60)
    ran = run(FOLD, [Signal(7, 1, 50), newer], clock=1)
    assert ran.pending == [newer]
    assert ran.states == {7: Counted(1)}
    assert run(FOLD, [], state=ran, clock=2).states == {7: Counted(2)}


def test_no_cut_of_the_input_changes_a_count():
    check_fold(FOLD)
