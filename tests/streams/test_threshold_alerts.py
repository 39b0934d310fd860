from datetime import timedelta

from include.fold.testing.cases import run
from include.fold.testing.check import check_fold
from include.streams.threshold_alerts import Alert, Recent, UserEvent, define

SPAN_US = 100
FOLD = define(event_type="purchase", span=timedelta(microseconds=SPAN_US), limit=2)


def purchases(*times_us: int) -> list[UserEvent]:
    return [UserEvent("ann", time_us, "purchase") for time_us in times_us]


def test_the_event_that_goes_above_the_limit_alerts():
    ran = run(FOLD, purchases(1_000, 1_010, 1_020))
    assert ran.outputs == [Alert("ann", "purchase", 3, 1_020 - SPAN_US)]
    assert ran.emitted_at_us == [1_020]


def test_events_of_other_types_and_beyond_the_span_do_not_count():
    other = UserEvent("ann", 1_005, "look")
    assert run(FOLD, [*purchases(1_000, 1_010, 1_100), other]).outputs == []


def test_it_alerts_once_until_the_number_has_fallen_back():
    ran = run(FOLD, purchases(1_000, 1_010, 1_020, 1_030))
    assert len(ran.outputs) == 1
    assert len(run(FOLD, purchases(2_000, 2_001, 2_002), state=ran).outputs) == 1


def test_a_user_who_has_done_nothing_for_a_span_is_forgotten():
    ran = run(FOLD, purchases(1_000))
    assert ran.states == {"ann": Recent((1_000,))}
    assert run(FOLD, [], state=ran, clock=1_000 + SPAN_US).states == {}


def test_no_cut_of_the_input_changes_an_alert():
    check_fold(define(event_type="purchase", span=timedelta(minutes=10), limit=1))
