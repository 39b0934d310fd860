"""Checkpoints of release 0.5 go on: their buckets as 0.5 stored them, in pandas frames, any cut."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import NEVER_US
from include.fold.bucket import check_not_folded, no_events
from include.fold.definition import KeyedFold
from include.fold.failures import BrokenInvariantError
from include.fold.states import KeyState
from include.streams import user_counts
from include.streams.user_counts import UserEvent
from spark_jobs.engines.live_of_0_5 import KEYS, PENDING, STATES, FrameProcessor
from spark_jobs.engines.packing import PACKED, to_stream
from spark_jobs.engines.pending import pending_events
from tests.bronze import ClockAt, stamp
from tests.engines.plain_operator import Handle, PlainOperator, bucket_of, events_table
from tests.fold.arrivals import DELAY_US, Arrivals, arrivals, came_to, delay_us
from tests.fold.machine import MARKED, each_kind, fold_of, machines
from tests.fold.oracle import calls_of, expected
from tests.fold.stream_cases import STREAMS

# Before which batches all buckets are put back to where 0.5 left them.
PUT_BACK = st.frozensets(st.integers(1, 6), min_size=1)


class FramesAsRows(FrameProcessor):
    """What Spark does around it: frames in, and frames out."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        frames = (pd.DataFrame([row], columns=PACKED.names, dtype=object) for row in rows)
        return _rows(super().handleInputRows(key, frames, timerValues))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        return _rows(super().handleExpiredTimer(key, timerValues, expiredTimerInfo))


def _rows(frames: Iterator[pd.DataFrame]) -> Iterator[Any]:
    for frame in frames:
        yield from frame.to_dict("records")


class OperatorOf05(PlainOperator):
    """An operator whose buckets can be put back to how 0.5 stored them."""

    def _processor(self, bucket: int) -> FramesAsRows:
        processor = FramesAsRows(self._fold, self._delay_us, self._since_us)
        processor.init(Handle(self, bucket))
        return processor

    def put_back(self) -> None:
        known = super().states().values()
        for bucket, stored in self._stored().items():
            events = stored.events or to_stream(no_events(self._fold))
            waiting = (stored.folded_until_us, stored.timer_ms, stored.waiting, events)
            own = [each for each in known if bucket_of(each.key, self._buckets) == bucket]
            self.values = {at: v for at, v in self.values.items() if at[1] != bucket}
            self.values[PENDING, bucket] = waiting
            if own:
                self.values[KEYS, bucket] = ([each.key for each in own],)
                self.values[STATES, bucket] = by_column(self._fold, own)

    def take_over_all(self) -> None:
        """As a batch would that touches each bucket, and settles nothing."""
        old = [at for (name, at), value in self.values.items() if name == PENDING]
        for bucket in old:
            processor = self._processor(bucket)
            processor._bucket.update(processor._read())

    def states(self) -> Mapping[Any, KeyState]:
        self.take_over_all()
        assert not {KEYS, STATES} & {name for name, _ in self.values}
        return super().states()


def by_column(fold: KeyedFold, known: list[KeyState]) -> tuple[Any, ...]:
    """The value of 0.5's states: lists, one a field, and the times."""
    nothing = [None] * len(fold.state_columns)
    columns = zip(*(each.state or nothing for each in known), strict=True)
    values = tuple([as_stored(value) for value in column] for column in columns)
    changed_at_us = [each.changed_at_us for each in known]
    timeouts_us = [each.timeout_at_us for each in known]
    assert fold.times_out or set(timeouts_us) == {NEVER_US}
    return (values, changed_at_us, timeouts_us) if fold.times_out else (values, changed_at_us)


def as_stored(value: Any) -> Any:
    """The state store hands arrays back as lists."""
    return list(value) if isinstance(value, tuple) else value


def gone_on(fold: KeyedFold, arrived: Arrivals, before: frozenset[int]) -> OperatorOf05:
    operator = OperatorOf05(fold, delay_us(fold), arrived.buckets)
    for number, batch in enumerate(arrived.batches(), 1):
        if number in before:
            operator.take_over_all()
            operator.put_back()
        operator.run_batch(batch)
    return operator


@each_kind
@given(data=st.data())
def test_a_checkpoint_of_0_5_goes_on_to_what_the_oracle_says(data, timeout, mode):
    machine = data.draw(machines(timeout))
    fold = fold_of(machine, mode)
    arrived = data.draw(MARKED).seen_by(fold)
    operator = gone_on(fold, arrived, data.draw(PUT_BACK))
    assert came_to(fold, operator) == expected(fold, machine.call, arrived.rows(), delay_us(fold))


@pytest.mark.full
@pytest.mark.parametrize("stream", STREAMS)
@given(data=st.data())
def test_the_shipped_streams_go_on_from_a_checkpoint_of_0_5(data, stream):
    shipped = STREAMS[stream]
    fold = data.draw(shipped.cases).fold
    arrived = data.draw(arrivals(shipped.events)).seen_by(fold)
    operator = gone_on(fold, arrived, data.draw(PUT_BACK))
    assert came_to(fold, operator) == expected(fold, calls_of(fold), arrived.rows(), delay_us(fold))


def test_0_5_put_back_refuses_the_events_of_a_bucket_that_was_taken_over():
    fold = user_counts.FOLD
    operator = OperatorOf05(fold, DELAY_US, buckets=1)
    commits = [[UserEvent("ann", 1_000_000)], ClockAt(9_000_000)]
    for batch in stamp(commits):
        operator.run_batch(batch)
    operator.put_back()
    operator.take_over_all()
    folded_until_us, timer_ms, rows, events = operator.values[PENDING, 0]
    assert (timer_ms, rows) == (None, 0)
    assert pending_events(fold, events).num_rows == 0
    later = events_table(fold, stamp([[UserEvent("ann", 10**16)]])[0])
    with pytest.raises(BrokenInvariantError, match="has folded all before"):
        check_not_folded(fold, later, folded_until_us, 0)
