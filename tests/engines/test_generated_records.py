"""The fold law over records that nobody has written: types, keys and what states keep are drawn."""

import types
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from include.fold.arrow_values import column_values
from include.lake.columns import arrow_type
from tests.engines.fold_law import KILLED, hold_engines_to_oracle, hold_parts_to_oracle
from tests.examples import examples
from tests.fold.arrivals import TIMES, arrivals, happenings
from tests.fold.oracle import calls_of
from tests.simulator.shaped_rows import landed_columns
from tests.simulator.shapes import Landed, shapes
from tests.simulator.stream_files import KINDS, stream_file

MILLISECONDS = timedelta(milliseconds=1)
few = settings(examples(40), suppress_health_check=list(HealthCheck))


def fold_of(kind, shape):
    """Return the fold of a stream's file, but for its spans: minutes are tenths of a millisecond."""
    module = types.ModuleType("generated")
    exec(stream_file(kind, "c", shape), vars(module))
    if kind == "silences":
        module.SILENCE_US = 4_000
    return (
        module.FOLD
        if shape.ttl is None
        else replace(module.FOLD, ttl=MILLISECONDS * shape.ttl / 10)
    )


def events_of(fold, shape):
    """Events that arrive, made of what bronze has."""

    def event(us, key, value):
        row = Landed(key, us, value)
        columns = landed_columns([row], shape)
        given = {"key": key, "event_time_us": us, "value": value}
        for column in fold.event_columns:
            if column.name not in given:
                of = columns[column.name].cast(arrow_type(column.kind))
                (given[column.name],) = column_values(column, of)
        return fold.event(**given)

    return happenings(event, st.sampled_from("aab"), st.integers(0, 3))


def drawn_shape(data):
    """Without named timers: the plain oracle has none (timer_machine.py has one for them)."""
    return replace(data.draw(shapes()), timers=())


@pytest.mark.parametrize("kind", KINDS)
@few
@given(data=st.data())
def test_engines_and_a_replay_in_any_two_parts_come_to_what_the_oracle_says(data, kind):
    shape = drawn_shape(data)
    fold = fold_of(kind, shape)
    arrived = data.draw(arrivals(events_of(fold, shape)))
    hold_engines_to_oracle(fold, calls_of(fold), arrived, data.draw(KILLED))
    hold_parts_to_oracle(fold, calls_of(fold), arrived, data.draw(TIMES))
