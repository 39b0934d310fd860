"""The fold law with timeouts: a state function that does anything, cut in any way.

The local engine against the oracle, which knows nothing of commits, batches and buckets.
"""

from hypothesis import given
from hypothesis import strategies as st

from include.fold.definition import KeyedFold
from tests.fold.arrivals import (
    TIMES,
    Arrivals,
    came_to,
    delay_us,
    engine_for,
    initial_states,
    run,
)
from tests.fold.machine import MARKED, STATES, Machine, each_kind, fold_of, machines
from tests.fold.oracle import Result, expected, until


def oracle(
    fold: KeyedFold, machine: Machine, arrived: Arrivals, since_us=None, initial=None
) -> Result:
    """What they must come to."""
    return expected(fold, machine.call, arrived.rows(), delay_us(fold), since_us, initial)


@each_kind
@given(data=st.data())
def test_no_cut_order_or_number_of_buckets_changes_what_a_stream_comes_to(data, timeout, mode):
    machine = data.draw(machines(timeout))
    fold = fold_of(machine, mode)
    arrived = data.draw(MARKED).seen_by(fold)
    engine = run(engine_for(fold, arrived.buckets), arrived.batches())
    assert came_to(fold, engine) == oracle(fold, machine, arrived)


@each_kind
@given(data=st.data())
def test_an_initial_state_stands_for_all_rows_before_it(data, timeout, mode):
    machine = data.draw(machines(timeout))
    fold = fold_of(machine, mode)
    arrived = data.draw(MARKED).seen_by(fold)
    since_us = data.draw(TIMES)
    initial = data.draw(initial_states(fold, st.none() | STATES, since_us))
    engine = run(engine_for(fold, arrived.buckets, since_us, initial), arrived.batches())
    assert came_to(fold, engine, initial) == oracle(fold, machine, arrived, since_us, initial)


@each_kind
@given(data=st.data())
def test_a_run_in_two_parts_from_the_states_between_them_is_one_run(data, timeout, mode):
    """A savepoint: `state(S)` and the rows from S on come to what all rows come to."""
    machine = data.draw(machines(timeout))
    fold = fold_of(machine, mode)
    arrived = data.draw(MARKED).seen_by(fold)
    whole = came_to(fold, run(engine_for(fold, 1), arrived.batches()))

    part = arrived.commits[: data.draw(st.integers(1, len(arrived.commits)))]
    first = came_to(fold, run(engine_for(fold, arrived.buckets), part))
    since_us = until([row for commit in part for row in commit], delay_us(fold))
    engine = engine_for(fold, arrived.buckets, since_us, first.states)
    second = came_to(fold, run(engine, arrived.batches()), first.states)

    table = first.table + second.table if mode == "append" else second.table
    assert (table, second.states) == (whole.table, whole.states)
    assert (second.late, second.pending) == (whole.late, whole.pending)
