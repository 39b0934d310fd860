"""The Event record changes while events wait in the state: they are read by name, or refused."""

from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from include.fold.arrow_values import event_schema
from include.fold.definition import KeyedFold, flat_map_groups_with_state
from spark_jobs.engines.packing import to_stream
from spark_jobs.engines.state_rows import PendingEventsError, pending_events
from tests.bronze import ClockAt, stamp
from tests.engines.plain_operator import PlainOperator
from tests.fold.arrivals import DELAY_US, KEYS, arrivals, came_to, happenings
from tests.fold.oracle import calls_of, expected
from tests.refused import refused


class Old(NamedTuple):
    key: str
    event_time_us: int
    dropped: str
    retained: int | None


class New(NamedTuple):
    added: float | None
    retained: int | None
    key: str
    event_time_us: int


def named(name, **fields):
    return NamedTuple(name, [("key", str), ("event_time_us", int), *fields.items()])


Demanding = named("Demanding", retained=int | None, added=float)
Retyped, Stricter = named("Retyped", retained=str | None), named("Stricter", retained=int)


class Trace(NamedTuple):
    trace: str


class Traced(NamedTuple):
    key: str
    trace: str


def trace(key, events, state):
    seen = state.get.trace if state.exists else ""
    for event in events:
        seen += f"{event.event_time_us} {event.retained} {getattr(event, 'added', None)};"
    state.update(Trace(seen))
    yield Traced(key, seen)


def fold_of(event: type) -> KeyedFold:
    return flat_map_groups_with_state(
        trace,
        key="key",
        event=event,
        state=Trace,
        output=Traced,
        output_mode="append",
        stream="traced",
    )


OLD, NEW = fold_of(Old), fold_of(New)
ARRIVED = arrivals(
    happenings(
        lambda us, key, retained: Old(key, us, "gone", retained),
        KEYS,
        st.none() | st.integers(0, 2),
    )
)


def as_new(row, added):
    if row.event is None:
        return row
    return row._replace(
        event=New(added, row.event.retained, row.event.key, row.event.event_time_us)
    )


@given(ARRIVED, st.integers(0, 6))
def test_a_fold_goes_on_under_the_new_record_with_the_events_that_wait(arrived, before):
    """Those are the old ones without what was dropped, and with None for what was added."""
    batches = list(arrived.batches())
    operator = PlainOperator(OLD, DELAY_US, arrived.buckets)
    for batch in batches[:before]:
        operator.run_batch(batch)
    operator._fold = NEW
    rows = [as_new(row, None) for batch in batches[:before] for row in batch]
    for batch in batches[before:]:
        new = [as_new(row, 0.5) for row in batch]
        operator.run_batch(new)
        rows += new
    # What was complete before the change saw old events, which trace alike; the order of ties
    # is that of the record, so it may be another one after the change.
    assume_no_ties(rows)
    assert came_to(NEW, operator) == expected(NEW, calls_of(NEW), rows, DELAY_US)


def assume_no_ties(rows) -> None:
    events = [row.event for row in rows if row.event is not None]
    assume(len({(event.key, event.event_time_us) for event in events}) == len(events))


def waiting(event: type, *events) -> bytes:
    return to_stream(
        pa.Table.from_pylist([e._asdict() for e in events], event_schema(fold_of(event)))
    )


@pytest.mark.parametrize("event", [Demanding, Stricter, Retyped])
def test_events_that_cannot_be_of_the_new_record_are_refused_while_some_wait(event):
    with refused(
        "settings_changed", subject="traced", command="./stateful rebuild traced --apply"
    ) as raised:
        pending_events(fold_of(event), waiting(Old, Old("a", 1, "gone", None)))
    assert "\n" not in str(raised.value)


def test_a_refused_batch_changes_nothing_in_the_state():
    operator = PlainOperator(OLD, DELAY_US, buckets=1)
    (first,), (second,) = stamp([[Old("a", 100_000, "gone", 1)], ClockAt(200_000)])
    operator.run_batch([first])
    assert operator.pending() == 1
    values, timers = dict(operator.values), set(operator.timers)
    operator._fold = fold_of(Demanding)
    with pytest.raises(PendingEventsError):
        operator.run_batch([second])
    assert (operator.values, operator.timers) == (values, timers)
