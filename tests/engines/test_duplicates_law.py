"""Events that are delivered again: on every engine, in any cut, with ttl, timeouts and failures."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from include.fold.deduplicate import Deduplicate
from tests.engines.plain_operator import replay
from tests.engines.test_live_law import KILLED, live
from tests.fold.arrivals import TIMES, came_to, delay_us, engine_for, initial_states
from tests.fold.arrivals import run as run_engine
from tests.fold.duplicates import seen_in, without_duplicates, without_empty
from tests.fold.failing_machine import PROJECTED_STATES, failing_machines, quarantining
from tests.fold.machine import MARKED, STATES, each_kind, fold_of, machines
from tests.fold.oracle import NOTHING, admit, expected, until
from tests.fold.stream_cases import SPANS_US, micros

BY = st.sampled_from(["mark", "mark", ("mark", "event_time_us"), "event_time_us"])


@st.composite
def deduplicating(draw, timeout, mode):
    """A fold that does anything with events of which it sees none twice; its machine, and states."""
    known = Deduplicate(by=draw(BY), within=micros(draw(SPANS_US)))
    ttl = draw(st.none() | SPANS_US.map(micros))
    if draw(st.booleans()):
        machine = draw(failing_machines(timeout, mode))
        fold, states = quarantining(machine, mode), PROJECTED_STATES
    else:
        machine = draw(machines(timeout))
        fold, states = fold_of(machine, mode), STATES
    return replace(fold, ttl=ttl, deduplicate=known), machine, states


@each_kind
@given(data=st.data())
def test_live_and_local_come_to_what_the_oracle_says(data, timeout, mode):
    fold, machine, states = data.draw(deduplicating(timeout, mode))
    arrived, since_us = data.draw(MARKED).seen_by(fold), data.draw(TIMES)
    initial = data.draw(initial_states(fold, st.none() | states, since_us))
    told = without_duplicates(fold, arrived.rows(), delay_us(fold), since_us)
    oracle = expected(fold, machine.call, told.rows, delay_us(fold), since_us, initial)
    operator = live(fold, arrived, data.draw(KILLED), since_us, initial)
    local = run_engine(engine_for(fold, arrived.buckets, since_us, initial), arrived.batches())
    for engine in (operator, local):
        assert without_empty(came_to(fold, engine, initial)) == oracle
        assert seen_in(engine.states().values()) == told.seen
        assert engine.duplicates == told.duplicates
        assert engine.states().keys() == oracle.states.keys() | told.seen.keys()


@each_kind
@given(data=st.data())
def test_a_replay_in_any_two_parts_comes_to_what_the_oracle_says(data, timeout, mode):
    fold, machine, _ = data.draw(deduplicating(timeout, mode))
    arrived = data.draw(MARKED).seen_by(fold)
    rows, _, _ = admit(fold, arrived.rows(), delay_us(fold))
    end_us = until(arrived.rows(), delay_us(fold))
    split_us = min(data.draw(TIMES), end_us)
    first = replay(fold, rows, split_us, {})
    second = replay(fold, [row for row in rows if row.time_us >= split_us], end_us, first.stored)
    told = without_duplicates(fold, arrived.rows(), delay_us(fold))
    oracle = expected(fold, machine.call, told.rows, delay_us(fold))
    assert {k: known for k, known in second.states.items() if known != NOTHING} == oracle.states
    assert seen_in(second.stored.values()) == told.seen
    assert first.duplicates + second.duplicates == told.duplicates
    if mode == "append":
        assert first.emitted + second.emitted == oracle.table
