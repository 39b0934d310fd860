"""The fold law on the code of the live engine and of the replay: many cuts, without a JVM."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.definition import KeyedFold
from include.streams import user_sessions
from include.streams.user_sessions import UserEvent
from tests.bronze import ClockAt, stamp
from tests.engines.plain_operator import PlainOperator, bucket_of, replay
from tests.fold.arrivals import (
    DELAY_US,
    TIMES,
    Arrivals,
    arrivals,
    as_key_state,
    came_to,
    delay_us,
    initial_states,
)
from tests.fold.machine import MARKED, STATES, each_kind, fold_of, machines
from tests.fold.oracle import Known, admit, calls_of, expected, until
from tests.fold.stream_cases import STREAMS

# Numbers of batches after which the run is killed before its batch without data.
KILLED = st.frozensets(st.integers(1, 6))


def live(
    fold: KeyedFold,
    arrived: Arrivals,
    killed: frozenset[int],
    since_us: int | None = None,
    initial: Mapping[Any, Known] | None = None,
) -> PlainOperator:
    operator = PlainOperator(fold, delay_us(fold), arrived.buckets, since_us)
    operator.seed([as_key_state(key, known) for key, known in (initial or {}).items()])
    batches = list(arrived.batches())
    for number, batch in enumerate(batches, 1):
        operator.run_batch(batch, number not in killed or number == len(batches))
    return operator


@each_kind
@given(data=st.data())
def test_the_live_engine_comes_to_what_the_oracle_says(data, timeout, mode):
    machine = data.draw(machines(timeout))
    fold = fold_of(machine, mode)
    arrived = data.draw(MARKED).seen_by(fold)
    operator = live(fold, arrived, data.draw(KILLED))
    oracle = expected(fold, machine.call, arrived.rows(), delay_us(fold))
    assert came_to(fold, operator) == oracle


@each_kind
@given(data=st.data())
def test_the_live_engine_with_an_initial_state_comes_to_what_the_oracle_says(data, timeout, mode):
    machine = data.draw(machines(timeout))
    fold = fold_of(machine, mode)
    arrived, since_us = data.draw(MARKED).seen_by(fold), data.draw(TIMES)
    initial = data.draw(initial_states(fold, st.none() | STATES, since_us))
    operator = live(fold, arrived, data.draw(KILLED), since_us, initial)
    oracle = expected(fold, machine.call, arrived.rows(), delay_us(fold), since_us, initial)
    assert came_to(fold, operator, initial) == oracle


@pytest.mark.parametrize("stream", STREAMS)
@given(data=st.data())
def test_the_live_engine_runs_the_shipped_streams_as_the_oracle_does(data, stream):
    shipped = STREAMS[stream]
    fold = data.draw(shipped.cases).fold
    arrived = data.draw(arrivals(shipped.events)).seen_by(fold)
    operator = live(fold, arrived, data.draw(KILLED))
    oracle = expected(fold, calls_of(fold), arrived.rows(), delay_us(fold))
    assert came_to(fold, operator) == oracle


@pytest.mark.parametrize("beside_us", [-1, 0, 1])
def test_an_event_that_waits_is_settled_though_its_bucket_waits_for_a_later_timeout(beside_us):
    """The bucket's timer moves forward, without any batch that settles something there."""
    fold = user_sessions.define(gap=timedelta(seconds=1))
    ann, watermark_us = "ann", 200_000
    commits = [
        [UserEvent(ann, 100_000)],
        ClockAt(150_000),  # settles it: now the bucket waits for a timeout at 1.1 s
        [UserEvent(ann, watermark_us + beside_us)],
        ClockAt(watermark_us + DELAY_US),
    ]
    operator = PlainOperator(fold, DELAY_US, buckets=7)
    assert bucket_of(fold, ann, 7) != bucket_of(fold, None, 7)  # the clock row's
    for rows in stamp(commits):
        operator.run_batch(rows)
    assert operator.states()[ann].state.events == (2 if beside_us <= 0 else 1)


@each_kind
@given(data=st.data())
def test_a_replay_in_any_two_parts_comes_to_what_the_oracle_says(data, timeout, mode):
    """The second part begins with the states of the first, and no output is of both."""
    machine = data.draw(machines(timeout))
    fold = fold_of(machine, mode)
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
        assert all(at_us < split_us for _, at_us in first.emitted)
        assert all(at_us >= split_us for _, at_us in second.emitted)
