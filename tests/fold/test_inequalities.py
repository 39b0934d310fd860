"""Each inequality of `include.fold.admission`, at equality and one microsecond beside it."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import is_late, timer_ms, until_us, watermark_us
from include.fold.bucket import check_not_folded
from include.fold.definition import KeyedFold, flat_map_groups_with_state
from include.fold.failures import BrokenInvariantError
from include.fold.group_state import GroupState
from include.fold.schemas import event_schema
from include.fold.states import KeyState
from tests.bronze import ClockAt, Happened, StampedRow, stamp
from tests.fold.local import LocalFold

DELAY_US = 5_000
WATERMARK_US = 20_000
NEWEST_US = WATERMARK_US + DELAY_US  # the event that moves the watermark to there
TIMES_OUT_US = 7_000  # after the event that sets it
BESIDE = (-1, 0, 1)


class Ping(NamedTuple):
    key: str
    sets_timeout: bool


class Pinged(NamedTuple):
    times: int


class Heard(NamedTuple):
    key: str
    cause: str


def hear(key: str, pings: Iterator[Ping], state: GroupState[Pinged]) -> Iterator[Heard]:
    """Says what it was called for."""
    if state.hasTimedOut:
        yield Heard(key, "timeout")
    for ping in pings:
        if ping.sets_timeout:
            state.setTimeoutTimestamp(timestampUs=state.clock_us + TIMES_OUT_US)
        yield Heard(key, "ping")


def hear_for_a_while(key: str, pings: Iterator[Ping], state: GroupState[Pinged]) -> Iterator[Heard]:
    """The same in processing time."""
    if state.hasTimedOut:
        yield Heard(key, "timeout")
    for _ in pings:
        state.setTimeoutDuration(durationUs=TIMES_OUT_US)
        yield Heard(key, "ping")


def fold_of(function, timeout: str) -> KeyedFold:
    return flat_map_groups_with_state(
        function,
        key="key",
        event=Ping,
        state=Pinged,
        output=Heard,
        output_mode="append",
        timeout=timeout,
    )


EVENT_TIME = fold_of(hear, "EventTimeTimeout")
SCHEMA = event_schema(EVENT_TIME)
PROCESSING_TIME = fold_of(hear_for_a_while, "ProcessingTimeTimeout")


def ping(time_us: int, key: str = "a", sets_timeout: bool = False) -> Happened:
    return Happened(Ping(key, sets_timeout), time_us)


def run(*commits, buckets: int = 1, **settings) -> LocalFold:
    """One batch for each commit."""
    engine = LocalFold(EVENT_TIME, DELAY_US, buckets, **settings)
    for rows in stamp(commits):
        engine.run_batch(rows)
    return engine


def heard(engine: LocalFold, key: str = "a") -> list[tuple[str, int]]:
    emitted = zip(engine.emitted.rows, engine.emitted.emitted_at_us, strict=True)
    return [(row.cause, at_us) for row, at_us in emitted if row.key == key]


@pytest.mark.parametrize("beside_us", BESIDE)
def test_a_row_up_to_the_arrival_watermark_less_the_delay_is_late(beside_us):
    time_us = WATERMARK_US + beside_us
    engine = run([ping(NEWEST_US, "clock")], [ping(time_us)])
    assert engine.late == (1 if beside_us <= 0 else 0)
    assert engine.pending() == (1 if beside_us <= 0 else 2)


@pytest.mark.parametrize("beside_us", BESIDE)
def test_a_clock_row_makes_rows_late_as_an_event_does(beside_us):
    engine = run(ClockAt(NEWEST_US), [ping(WATERMARK_US + beside_us)])
    assert engine.late == (1 if beside_us <= 0 else 0)


@pytest.mark.parametrize("time_us", [-1, 0, 1, NEWEST_US])
def test_in_the_first_commit_nothing_is_late(time_us):
    assert run([ping(time_us), ping(NEWEST_US)]).late == 0


@pytest.mark.parametrize("time_us", [1, WATERMARK_US, NEWEST_US - 1])
def test_in_processing_time_nothing_is_late(time_us):
    engine = LocalFold(PROCESSING_TIME, delay_us=0)
    engine.run_batch([StampedRow(Ping("a", False), 50_000, NEWEST_US, 50_000, 50_000)])
    engine.run_batch([StampedRow(Ping("a", False), 50_001, 10**15, 50_001, 50_001)])
    assert (engine.late, heard(engine)) == (0, [("ping", 50_000), ("ping", 50_001)])


@pytest.mark.parametrize("beside_us", BESIDE)
def test_an_event_up_to_the_watermark_is_settled(beside_us):
    time_us = WATERMARK_US + beside_us
    engine = run([ping(NEWEST_US, "clock"), ping(time_us)])
    assert heard(engine) == ([("ping", time_us)] if beside_us <= 0 else [])
    assert engine.pending() == (1 if beside_us <= 0 else 2)


@pytest.mark.parametrize("newest", [ping(NEWEST_US, "clock"), ClockAt(NEWEST_US)])
@pytest.mark.parametrize("buckets", [1, 7])
@pytest.mark.parametrize("beside_us", BESIDE)
def test_a_timeout_up_to_the_watermark_fires(beside_us, buckets, newest):
    set_us = WATERMARK_US - TIMES_OUT_US + beside_us
    moves = [newest] if isinstance(newest, Happened) else newest
    engine = run([ping(set_us, sets_timeout=True)], moves, buckets=buckets)
    fired = [("timeout", set_us + TIMES_OUT_US)] if beside_us <= 0 else []
    assert heard(engine) == [("ping", set_us), *fired]
    assert len(engine.states()) == (0 if fired else 1)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("beside_us", BESIDE)
def test_a_timeout_fires_before_a_later_event_and_an_event_at_its_instant_comes_first(
    beside_us, together
):
    """A call clears the timeout: of an event at its instant, it does not fire any more."""
    timeout_us = 1_000 + TIMES_OUT_US
    event_us = timeout_us + beside_us
    first, second = [ping(1_000, sets_timeout=True)], [ping(event_us)]
    last = [ping(NEWEST_US)]
    engine = run([*second, *first, *last]) if together else run(first, second, last)
    fired = [("timeout", timeout_us)] if beside_us > 0 else []
    assert heard(engine) == [("ping", 1_000), *fired, ("ping", event_us)]


@pytest.mark.parametrize("beside_us", BESIDE)
def test_in_processing_time_the_ingestion_of_a_commit_is_its_watermark(beside_us):
    engine = LocalFold(PROCESSING_TIME, delay_us=0, buckets=7)
    end_us = 1_000 + TIMES_OUT_US + beside_us
    for event, at_us in ((Ping("a", True), 1_000), (None, end_us)):
        engine.run_batch([StampedRow(event, at_us, None, at_us, at_us)])
    fired = [("timeout", 1_000 + TIMES_OUT_US)] if beside_us >= 0 else []
    assert heard(engine) == [("ping", 1_000), *fired]


@pytest.mark.parametrize("beside_us", BESIDE)
def test_a_row_before_as_of_is_excluded(beside_us):
    as_of_us = 10_000
    engine = run([ping(as_of_us + beside_us), ping(NEWEST_US, "clock")], since_us=as_of_us)
    assert engine.excluded == (1 if beside_us < 0 else 0)
    assert heard(engine) == ([] if beside_us < 0 else [("ping", as_of_us + beside_us)])


@pytest.mark.parametrize("beside_us", BESIDE)
def test_a_row_that_is_late_and_before_as_of_is_late(beside_us):
    as_of_us = WATERMARK_US + 1
    engine = run([ping(NEWEST_US, "clock")], [ping(as_of_us + beside_us)], since_us=as_of_us)
    assert (engine.late, engine.excluded) == ((1, 0) if beside_us < 0 else (0, 0))


@pytest.mark.parametrize("beside_us", BESIDE)
def test_a_timeout_of_the_initial_state_fires_as_any_other(beside_us):
    timeout_us = WATERMARK_US + beside_us
    initial = [KeyState("a", Pinged(1), 10_000, timeout_us)]
    engine = run([ping(NEWEST_US, "clock")], since_us=10_000, initial=initial)
    assert heard(engine) == ([("timeout", timeout_us)] if beside_us <= 0 else [])


@pytest.mark.parametrize("beside_us", BESIDE)
def test_the_first_timer_that_is_not_before_an_instant(beside_us):
    """In whole milliseconds, as Spark's timers are."""
    assert timer_ms(7_000 + beside_us) == (8 if beside_us > 0 else 7)


@given(st.integers(-(10**15), 10**15), st.integers(-2, 2))
def test_a_timer_fires_in_the_batch_whose_watermark_settles_its_instant(instant_us, beside_ms):
    """Spark fires a timer when it is not after the watermark (facts.md, S16)."""
    watermark_ms = instant_us // 1_000 + beside_ms
    fires = timer_ms(instant_us) <= watermark_ms
    assert fires == (instant_us < until_us(watermark_ms * 1_000))


@given(st.lists(st.integers(0, 9), min_size=1), st.integers(0, 9), st.integers(0, 3))
def test_the_comparisons_say_of_an_array_what_they_say_of_each_number(times, arrival_us, delay_us):
    each = [is_late(time_us, arrival_us, delay_us) for time_us in times]
    assert is_late(np.array(times), arrival_us, delay_us).tolist() == each
    settled = [time_us < until_us(watermark_us(arrival_us, delay_us)) for time_us in times]
    assert each == settled  # what the arrival watermark has settled comes too late, and only that


@pytest.mark.parametrize("beside_us", BESIDE)
def test_a_row_before_what_a_bucket_has_folded_is_a_broken_invariant(beside_us):
    """For the local engine and for the others; a row exactly there is the first to be folded."""
    until = 10_000
    time_us = until + beside_us
    engine = LocalFold(EVENT_TIME, delay_us=0)
    engine.run_batch([StampedRow(None, until - 1, None, until - 1, 0)])
    row = StampedRow(Ping("a", False), time_us, None, time_us, 0)
    events = pa.Table.from_pylist([row.event._asdict() | {"event_time_us": time_us}], SCHEMA)
    for take in (
        lambda: engine.run_batch([row]),
        lambda: check_not_folded(EVENT_TIME, events, until, bucket=3),
    ):
        with pytest.raises(BrokenInvariantError) if beside_us < 0 else nullcontext():
            take()
