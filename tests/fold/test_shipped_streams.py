"""Every stream that we ship against what its docstring says, computed from all events at once."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.streams import service_health
from include.streams.service_health import Health
from tests.fold.arrivals import TIMES, arrivals, came_to, delay_us, engine_for, run
from tests.fold.oracle import Known, admit, until
from tests.fold.stream_cases import (
    LINES,
    SPANS_US,
    STREAMS,
    Case,
    health_changes,
    micros,
    said_of,
    times_of,
)


@pytest.mark.parametrize("stream", STREAMS)
@given(data=st.data())
def test_a_stream_emits_what_its_docstring_says_of_all_complete_events(data, stream):
    shipped = STREAMS[stream]
    case = data.draw(shipped.cases)
    arrived = data.draw(arrivals(shipped.events)).seen_by(case.fold)
    engine = run(engine_for(case.fold, arrived.buckets), arrived.batches())

    admitted, late, _ = admit(case.fold, arrived.rows(), delay_us(case.fold))
    end_us = until(arrived.rows(), delay_us(case.fold))
    assert came_to(case.fold, engine).table == said_of(case, admitted, end_us)
    assert engine.late == late


@pytest.mark.parametrize("time", ["event", "processing"])
@given(
    data=st.data(),
    silence_us=SPANS_US,
    since_us=TIMES,
    was_stale=st.dictionaries(st.sampled_from("abz"), st.booleans()),
)
def test_a_service_of_the_initial_state_is_stale_without_ever_sending_a_line(
    data, time, silence_us, since_us, was_stale
):
    """Its silence is counted from the initial state's `as_of`."""
    fold = service_health.define(stale_after=micros(silence_us), time=time)
    arrived = data.draw(arrivals(LINES)).seen_by(fold)
    initial = {
        service: Known(Health(stale), since_us, since_us + silence_us)
        for service, stale in was_stale.items()
    }
    engine = run(engine_for(fold, arrived.buckets, since_us, initial), arrived.batches())

    admitted, _, excluded = admit(fold, arrived.rows(), delay_us(fold), since_us)
    end_us = until(arrived.rows(), delay_us(fold))
    changes = health_changes(silence_us)
    times = times_of(Case(fold, changes), admitted, end_us)
    back = Counter(((s, "ok"), times[s][0]) for s, stale in was_stale.items() if stale and times[s])
    for service in (service for service, stale in was_stale.items() if not stale):
        times[service].insert(0, since_us)  # as if it had sent a line at `as_of`
    said = back + Counter(changes({s: own for s, own in times.items() if own}, end_us))
    assert came_to(fold, engine, initial).table == said
    assert engine.excluded == excluded
