"""The fold law of streams that reject: what is rejected does not depend on the cut either."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.fold.arrivals import TIMES, came_to, delay_us, engine_for, initial_states, run
from tests.fold.failing_machine import PROJECTED_STATES, failing_machines, quarantining
from tests.fold.machine import MARKED, each_kind
from tests.fold.oracle import expected, until


@each_kind
@given(data=st.data())
def test_no_cut_order_or_number_of_buckets_changes_what_is_rejected(data, timeout, mode):
    machine = data.draw(failing_machines(timeout, mode))
    fold = quarantining(machine, mode)
    arrived = data.draw(MARKED).seen_by(fold)
    engine = run(engine_for(fold, arrived.buckets), arrived.batches())
    assert came_to(fold, engine) == expected(fold, machine.call, arrived.rows(), delay_us(fold))


@each_kind
@given(data=st.data())
def test_keys_of_an_initial_state_are_rejected_as_others(data, timeout, mode):
    machine = data.draw(failing_machines(timeout, mode))
    fold = quarantining(machine, mode)
    arrived, since_us = data.draw(MARKED).seen_by(fold), data.draw(TIMES)
    initial = data.draw(initial_states(fold, st.none() | PROJECTED_STATES, since_us))
    engine = run(engine_for(fold, arrived.buckets, since_us, initial), arrived.batches())
    oracle = expected(fold, machine.call, arrived.rows(), delay_us(fold), since_us, initial)
    assert came_to(fold, engine, initial) == oracle


@each_kind
@given(data=st.data())
def test_a_run_in_two_parts_rejects_what_one_run_does(data, timeout, mode):
    """A savepoint: what comes after it is rejected by `state(S)` alone."""
    machine = data.draw(failing_machines(timeout, mode))
    fold = quarantining(machine, mode)
    arrived = data.draw(MARKED).seen_by(fold)
    whole = came_to(fold, run(engine_for(fold, 1), arrived.batches()))

    part = arrived.commits[: data.draw(st.integers(1, len(arrived.commits)))]
    first = came_to(fold, run(engine_for(fold, arrived.buckets), part))
    since_us = until([row for commit in part for row in commit], delay_us(fold))
    engine = engine_for(fold, arrived.buckets, since_us, first.states)
    second = came_to(fold, run(engine, arrived.batches()), first.states)

    assert first.rejected + second.rejected == whole.rejected
    assert second.states == whole.states


@each_kind
@given(data=st.data())
def test_what_stops_at_nothing_comes_to_the_same_as_what_rejects(data, timeout, mode):
    """So a stream may begin to reject and keep its savepoints."""
    machine = data.draw(failing_machines(timeout, mode))
    fold = quarantining(machine, mode)
    arrived = data.draw(MARKED).seen_by(fold)
    stops = replace(fold, on_error="stop")
    engine = run(engine_for(fold, arrived.buckets), arrived.batches())
    if engine.rejected:
        return
    stopping = run(engine_for(stops, arrived.buckets), arrived.batches())
    assert came_to(stops, stopping) == came_to(fold, engine)
