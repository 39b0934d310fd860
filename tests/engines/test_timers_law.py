"""Named timers: on every engine, in any cut, with timeouts, ttl, failing calls and duplicates."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.deduplicate import Deduplicate
from tests.engines.plain_operator import replay
from tests.engines.test_live_law import KILLED, live
from tests.fold.arrivals import TIMES, came_to, delay_us, engine_for, initial_states
from tests.fold.arrivals import run as run_engine
from tests.fold.duplicates import without_duplicates, without_empty
from tests.fold.machine import MARKED, STATES
from tests.fold.oracle import NOTHING, admit, until
from tests.fold.stream_cases import SPANS_US, micros
from tests.fold.timer_machine import expected, fold_with_timers, timer_machines, timers_in

CLOCKS = ("EventTimeTimeout", "ProcessingTimeTimeout")
each_kind = pytest.mark.parametrize(
    ("timeout", "mode"), [(timeout, mode) for timeout in CLOCKS for mode in ("append", "update")]
)


@st.composite
def timed(draw, timeout, mode):
    machine = draw(timer_machines(timeout))
    fold = replace(fold_with_timers(machine, mode), ttl=draw(st.none() | SPANS_US.map(micros)))
    within = draw(st.none() | st.none() | SPANS_US.map(micros))
    if within is not None:
        fold = replace(fold, deduplicate=Deduplicate(by="mark", within=within))
    return fold, machine


def distinct_rows(fold, rows, since_us=None):
    if fold.deduplicate is None:
        return list(rows)
    return without_duplicates(fold, rows, delay_us(fold), since_us).rows


@each_kind
@given(data=st.data())
def test_live_and_local_come_to_what_the_oracle_says(data, timeout, mode):
    fold, machine = data.draw(timed(timeout, mode))
    arrived, since_us = data.draw(MARKED).seen_by(fold), data.draw(TIMES)
    initial = data.draw(initial_states(fold, st.none() | STATES, since_us))
    rows = distinct_rows(fold, arrived.rows(), since_us)
    oracle = expected(fold, machine, rows, delay_us(fold), since_us, initial)
    operator = live(fold, arrived, data.draw(KILLED), since_us, initial)
    local = run_engine(engine_for(fold, arrived.buckets, since_us, initial), arrived.batches())
    for engine in (operator, local):
        assert without_empty(came_to(fold, engine, initial)) == oracle.result
        assert timers_in(engine.states().values()) == oracle.timers


@each_kind
@given(data=st.data())
def test_a_replay_in_any_two_parts_comes_to_what_the_oracle_says(data, timeout, mode):
    fold, machine = data.draw(timed(timeout, mode))
    arrived = data.draw(MARKED).seen_by(fold)
    rows, _, _ = admit(fold, arrived.rows(), delay_us(fold))
    end_us = until(arrived.rows(), delay_us(fold))
    split_us = min(data.draw(TIMES), end_us)
    first = replay(fold, rows, split_us, {})
    second = replay(fold, [row for row in rows if row.time_us >= split_us], end_us, first.stored)
    oracle = expected(fold, machine, distinct_rows(fold, arrived.rows()), delay_us(fold))
    states = {key: known for key, known in second.states.items() if known != NOTHING}
    assert (states, timers_in(second.stored.values())) == (oracle.result.states, oracle.timers)
    if mode == "append":
        assert first.emitted + second.emitted == oracle.result.table
