"""States that end by themselves: on every engine, in any cut, with timeouts and failing calls."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from include.registry import stream_named
from include.stream_definition import load_definition, pinned_settings
from include.streams import user_counts
from tests.declared import with_fold
from tests.engines.plain_operator import replay
from tests.engines.test_live_law import KILLED, live
from tests.fold.arrivals import TIMES, came_to, delay_us, engine_for, initial_states
from tests.fold.arrivals import run as run_engine
from tests.fold.failing_machine import PROJECTED_STATES, failing_machines, quarantining
from tests.fold.machine import MARKED, STATES, each_kind, fold_of, machines
from tests.fold.oracle import admit, expected, until
from tests.fold.stream_cases import SPANS_US, micros
from tests.refused import refused


@st.composite
def ending(draw, timeout, mode):
    """A fold that does anything, whose states end; its oracle; and states to begin with."""
    ttl = micros(draw(SPANS_US))
    if draw(st.booleans()):
        machine = draw(failing_machines(timeout, mode))
        return replace(quarantining(machine, mode), ttl=ttl), machine, PROJECTED_STATES
    machine = draw(machines(timeout))
    return replace(fold_of(machine, mode), ttl=ttl), machine, STATES


@each_kind
@given(data=st.data())
def test_live_and_local_come_to_what_the_oracle_says(data, timeout, mode):
    fold, machine, states = data.draw(ending(timeout, mode))
    arrived, since_us = data.draw(MARKED).seen_by(fold), data.draw(TIMES)
    initial = data.draw(initial_states(fold, st.none() | states, since_us))
    oracle = expected(fold, machine.call, arrived.rows(), delay_us(fold), since_us, initial)
    operator = live(fold, arrived, data.draw(KILLED), since_us, initial)
    assert came_to(fold, operator, initial) == oracle
    engine = run_engine(engine_for(fold, arrived.buckets, since_us, initial), arrived.batches())
    assert came_to(fold, engine, initial) == oracle


@each_kind
@given(data=st.data())
def test_a_replay_in_any_two_parts_comes_to_what_the_oracle_says(data, timeout, mode):
    fold, machine, _ = data.draw(ending(timeout, mode))
    arrived = data.draw(MARKED).seen_by(fold)
    rows, _, _ = admit(fold, arrived.rows(), delay_us(fold))
    end_us = until(arrived.rows(), delay_us(fold))
    split_us = min(data.draw(TIMES), end_us)
    first = replay(fold, rows, split_us, {})
    second = replay(fold, [row for row in rows if row.time_us >= split_us], end_us, first.states)
    oracle = expected(fold, machine.call, arrived.rows(), delay_us(fold))
    assert second.states == oracle.states
    if mode == "append":
        assert first.emitted + second.emitted == oracle.table


def test_how_long_is_pinned_and_must_be_some_time():
    with refused("wrong_definition", subject="ttl"):
        replace(user_counts.FOLD, ttl=timedelta(0))
    stream = stream_named("user_counts")
    fold = replace(user_counts.FOLD, ttl=timedelta(days=90))
    pinned = pinned_settings(stream, load_definition(with_fold(stream, fold)).fold)
    assert pinned["settings"] == '{"ttl": "90 days, 0:00:00"}'
    assert pinned_settings(stream, user_counts.FOLD)["settings"] is None
