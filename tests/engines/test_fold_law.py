"""The fold law over functions that do anything: with timeouts, failing calls, states that end, events
that are delivered again and named timers; on the code of the live engine, of the replay and of the local one."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.definition import Deduplicate, KeyedFold
from include.streams import user_sessions
from include.streams.user_sessions import UserEvent
from tests.bronze import ClockAt, stamp
from tests.engines.fold_law import KILLED, hold_engines_to_oracle, hold_parts_to_oracle
from tests.engines.plain_operator import PlainOperator, bucket_of
from tests.examples import examples
from tests.fold.arrivals import DELAY_US, TIMES, arrivals, initial_states
from tests.fold.failing_machine import PROJECTED_STATES, failing_machines, with_dead_letters
from tests.fold.machine import MARKED, STATES, WAYS, fold_of, machines
from tests.fold.oracle import Call, calls_of
from tests.fold.stream_cases import SPANS_US, STREAMS, micros
from tests.fold.timer_machine import fold_with_timers, timer_machines

NO_TIMEOUT = "NoTimeout"
SEEN_BY = st.sampled_from(["mark", "mark", ("mark", "event_time_us"), "event_time_us"])


class Drawn(NamedTuple):
    """A fold, its function for the oracle, and states to begin with."""

    fold: KeyedFold
    call: Call
    states: st.SearchStrategy[Any]


@st.composite
def plain(draw: st.DrawFn, timeout: str, mode: str) -> Drawn:
    machine = draw(machines(timeout))
    return Drawn(fold_of(machine, mode), machine.call, STATES)


@st.composite
def keeping(draw: st.DrawFn, timeout: str, mode: str) -> Drawn:
    machine = draw(failing_machines(timeout, mode))
    return Drawn(with_dead_letters(machine, mode), machine.call, PROJECTED_STATES)


@st.composite
def ending(draw: st.DrawFn, timeout: str, mode: str) -> Drawn:
    drawn = draw(plain(timeout, mode) | keeping(timeout, mode))
    return drawn._replace(fold=replace(drawn.fold, ttl=micros(draw(SPANS_US))))


@st.composite
def deduplicating(draw: st.DrawFn, timeout: str, mode: str) -> Drawn:
    drawn = draw(plain(timeout, mode) | keeping(timeout, mode))
    again = Deduplicate(by=draw(SEEN_BY), within=micros(draw(SPANS_US)))
    ttl = draw(st.none() | SPANS_US.map(micros))
    return drawn._replace(fold=replace(drawn.fold, ttl=ttl, deduplicate=again))


@st.composite
def timed(draw: st.DrawFn, timeout: str, mode: str) -> Drawn:
    machine = draw(timer_machines(timeout))
    fold = replace(fold_with_timers(machine, mode), ttl=draw(st.none() | SPANS_US.map(micros)))
    within = draw(st.none() | st.none() | SPANS_US.map(micros))
    if within is not None:
        fold = replace(fold, deduplicate=Deduplicate(by="mark", within=within))
    return Drawn(fold, machine.call, STATES)


def each_kind(*what: Callable[[str, str], st.SearchStrategy[Drawn]]) -> pytest.MarkDecorator:
    """Parametrize by folds of each kind of timeout and of output; a timer needs a clock."""
    kinds = [
        pytest.param(of(timeout, mode), id=f"{of.__name__}-{timeout}-{mode}")
        for of in what
        for timeout in WAYS
        for mode in ("append", "update")
        if not (of is timed and timeout == NO_TIMEOUT)
    ]
    return pytest.mark.parametrize("folds", kinds)


EVERY = (plain, keeping, ending, deduplicating, timed)


@each_kind(*EVERY)
@examples(200)
@given(data=st.data())
def test_live_and_local_come_to_what_the_oracle_says(data, folds):
    """From the beginning, or from an initial state, which stands for all rows before it."""
    fold, call, states = data.draw(folds)
    arrived, since_us, initial = data.draw(MARKED).seen_by(fold), None, None
    if data.draw(st.booleans()):
        since_us = data.draw(TIMES)
        initial = data.draw(initial_states(fold, st.none() | states, since_us))
    hold_engines_to_oracle(fold, call, arrived, data.draw(KILLED), since_us, initial)


@each_kind(*EVERY)
@given(data=st.data())
def test_a_replay_in_any_two_parts_comes_to_what_the_oracle_says(data, folds):
    fold, call, _ = data.draw(folds)
    arrived = data.draw(MARKED).seen_by(fold)
    hold_parts_to_oracle(fold, call, arrived, data.draw(TIMES))


@pytest.mark.parametrize("stream", STREAMS)
@given(data=st.data())
def test_the_engines_run_the_shipped_streams_as_the_oracle_does(data, stream):
    shipped = STREAMS[stream]
    fold = data.draw(shipped.cases).fold
    arrived = data.draw(arrivals(shipped.events)).seen_by(fold)
    since_us, initial = None, None
    if data.draw(st.booleans()):
        since_us = data.draw(TIMES)
        initial = data.draw(initial_states(fold, shipped.states, since_us))
        if stream == "device_signals":
            initial = {ord(key): known for key, known in initial.items()}
    hold_engines_to_oracle(fold, calls_of(fold), arrived, data.draw(KILLED), since_us, initial)


@pytest.mark.parametrize("around_us", [-1, 0, 1])
def test_an_event_that_waits_is_complete_though_its_bucket_waits_for_a_later_timeout(around_us):
    """The bucket's timer moves forward, without any batch that completes something there."""
    fold = user_sessions.define(gap=timedelta(seconds=1))
    ann, watermark_us = "ann", 200_000
    commits = [
        [UserEvent(ann, 100_000)],
        ClockAt(150_000),  # completes it: now the bucket waits for a timeout at 1.1 s
        [UserEvent(ann, watermark_us + around_us)],
        ClockAt(watermark_us + DELAY_US),
    ]
    operator = PlainOperator(fold, DELAY_US, buckets=7)
    assert bucket_of(fold, ann, 7) != bucket_of(fold, None, 7)  # the heartbeat's
    for rows in stamp(commits):
        operator.run_batch(rows)
    assert operator.states()[ann].state.events == (2 if around_us <= 0 else 1)
