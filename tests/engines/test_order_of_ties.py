"""Events of one key at one instant have one order, whatever their values: no arrival shows.

Equal numbers need not be the same: 0.0 and -0.0 differ in their sign, and NaN in its bits. A
state function that looks at those must be called in the same order, too.
"""

import struct
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.arrow_values import event_schema
from include.fold.definition import flat_map_groups_with_state
from include.fold.event_order import order_events
from tests.engines.plain_operator import PlainOperator
from tests.engines.test_changed_events import Trace, Traced
from tests.fold.arrivals import DELAY_US, KEYS, arrivals, came_to, engine_for, happenings, run
from tests.fold.oracle import calls_of, expected


class Reading(NamedTuple):
    key: str
    event_time_us: int
    amount: float | None
    other: float
    note: str | None


def of_bits(bits: int) -> float:
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    return value


def bits_of(value: float | None) -> str:
    return "none" if value is None else struct.pack(">d", value).hex()


def trace(key, events, state):
    """Its state is all that it was given, bit by bit, in order."""
    seen = state.get.trace if state.exists else ""
    for event in events:
        seen += (
            f"{event.event_time_us}:{bits_of(event.amount)}:{bits_of(event.other)}:{event.note} "
        )
    state.update(Trace(seen))
    yield Traced(key, seen)


FOLD = flat_map_groups_with_state(
    trace, key="key", event=Reading, state=Trace, output=Traced, output_mode="append"
)
NANS = [
    of_bits(bits) for bits in (0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1, (0xFFF << 52) + 9)
]
FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), *NANS])
NOTES = st.sampled_from([None, "", "a"])
ARRIVED = arrivals(
    happenings(
        lambda us, key, *values: Reading(key, us // 8_000 * 8_000, *values),
        KEYS,
        st.none() | FLOATS,
        FLOATS,
        NOTES,
    ).map(
        lambda arrival: arrival._replace(
            event=arrival.event._replace(time_us=arrival.event.event.event_time_us)
        )
    )
)


def table_of(events: list[Reading]) -> pa.Table:
    return pa.Table.from_pylist([event._asdict() for event in events], event_schema(FOLD))


@pytest.mark.parametrize("engine", ["local", "live"])
@given(arrived=ARRIVED)
def test_an_engine_comes_to_what_the_oracle_says_whatever_arrives_first(engine, arrived):
    if engine == "local":
        folded = run(engine_for(FOLD, arrived.buckets), arrived.batches())
    else:
        folded = PlainOperator(FOLD, DELAY_US, arrived.buckets)
        for batch in arrived.batches():
            folded.run_batch(batch)
    assert came_to(FOLD, folded) == expected(FOLD, calls_of(FOLD), arrived.rows(), DELAY_US)


def test_nothing_comes_first_then_what_is_no_number_then_numbers_with_their_sign():
    order = [None, NANS[1], NANS[3], NANS[0], NANS[2], -float("inf"), -1.0, -0.0, 0.0, 1.0]
    events = [Reading("a", 1, amount, 1.0, None) for amount in reversed(order)]
    ordered = order_events(FOLD, table_of(events)).events
    assert [bits_of(value) for value in ordered["amount"].to_pylist()] == [
        bits_of(v) for v in order
    ]
