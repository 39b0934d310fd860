"""Inequalities of `include.fold.admission` that the law's tests do not meet as they are, at equality and
one microsecond beside it."""

from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import is_late, timer_ms, until_us, watermark_us
from include.fold.arrow_values import event_schema
from include.fold.bucket import check_not_folded
from include.fold.failures import BrokenInvariantError
from include.streams.user_counts import FOLD, UserEvent
from tests.bronze import StampedRow
from tests.fold.local import LocalFold

AROUND = (-1, 0, 1)


@given(st.integers(-(10**15), 10**15), st.integers(-2, 2))
def test_a_timer_fires_in_the_batch_whose_watermark_settles_its_instant(instant_us, around_ms):
    """Spark fires a timer when it is not after the watermark."""
    watermark_ms = instant_us // 1_000 + around_ms
    fires = timer_ms(instant_us) <= watermark_ms
    assert fires == (instant_us < until_us(watermark_ms * 1_000))


@given(st.lists(st.integers(0, 9), min_size=1), st.integers(0, 9), st.integers(0, 3))
def test_the_comparisons_say_of_an_array_what_they_say_of_each_number(times, arrival_us, delay_us):
    each = [is_late(time_us, arrival_us, delay_us) for time_us in times]
    assert is_late(np.array(times), arrival_us, delay_us).tolist() == each
    complete = [time_us < until_us(watermark_us(arrival_us, delay_us)) for time_us in times]
    assert (
        each == complete
    )  # what the arrival watermark has completed comes too late, and only that


@pytest.mark.parametrize("around_us", AROUND)
def test_a_row_before_what_a_bucket_has_folded_is_a_broken_invariant(around_us):
    """For the local engine and for the others; a row exactly there is the first to be folded."""
    until = 10_000
    time_us = until + around_us
    engine = LocalFold(FOLD, delay_us=0)
    engine.run_batch([StampedRow(None, until - 1, None, until - 1, 0)])
    row = StampedRow(UserEvent("a", time_us), time_us, None, time_us, 0)
    events = pa.Table.from_pylist([row.event._asdict()], event_schema(FOLD))
    for take in (
        lambda: engine.run_batch([row]),
        lambda: check_not_folded(FOLD, events, until, bucket=3),
    ):
        with pytest.raises(BrokenInvariantError) if around_us < 0 else nullcontext():
            take()
