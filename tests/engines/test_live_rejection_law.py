"""What the code of the live engine and of the replay reject: the same, whatever the cut."""

from hypothesis import given
from hypothesis import strategies as st

from tests.engines.plain_operator import replay
from tests.engines.test_live_law import KILLED, live
from tests.fold.arrivals import TIMES, came_to, delay_us, initial_states, rejected_in
from tests.fold.failing_machine import PROJECTED_STATES, failing_machines, quarantining
from tests.fold.machine import MARKED, each_kind
from tests.fold.oracle import admit, expected, until


@each_kind
@given(data=st.data())
def test_the_live_engine_rejects_what_the_oracle_says(data, timeout, mode):
    machine = data.draw(failing_machines(timeout, mode))
    fold = quarantining(machine, mode)
    arrived = data.draw(MARKED).seen_by(fold)
    operator = live(fold, arrived, data.draw(KILLED))
    assert came_to(fold, operator) == expected(fold, machine.call, arrived.rows(), delay_us(fold))


@each_kind
@given(data=st.data())
def test_the_live_engine_with_an_initial_state_rejects_what_the_oracle_says(data, timeout, mode):
    machine = data.draw(failing_machines(timeout, mode))
    fold = quarantining(machine, mode)
    arrived, since_us = data.draw(MARKED).seen_by(fold), data.draw(TIMES)
    initial = data.draw(initial_states(fold, st.none() | PROJECTED_STATES, since_us))
    operator = live(fold, arrived, data.draw(KILLED), since_us, initial)
    oracle = expected(fold, machine.call, arrived.rows(), delay_us(fold), since_us, initial)
    assert came_to(fold, operator, initial) == oracle


@each_kind
@given(data=st.data())
def test_a_replay_in_any_two_parts_rejects_what_the_oracle_says(data, timeout, mode):
    machine = data.draw(failing_machines(timeout, mode))
    fold = quarantining(machine, mode)
    arrived = data.draw(MARKED).seen_by(fold)
    rows, _, _ = admit(fold, arrived.rows(), delay_us(fold))
    end_us = until(arrived.rows(), delay_us(fold))
    split_us = min(data.draw(TIMES), end_us)

    first = replay(fold, rows, split_us, {})
    second = replay(fold, [row for row in rows if row.time_us >= split_us], end_us, first.states)

    oracle = expected(fold, machine.call, arrived.rows(), delay_us(fold))
    assert rejected_in(fold, [*first.rejected, *second.rejected]) == oracle.rejected
    assert all(call.at_us < split_us for call in first.rejected)
    assert all(call.at_us >= split_us for call in second.rejected)
    assert second.states == oracle.states
    if mode == "append":
        assert first.emitted + second.emitted == oracle.table
