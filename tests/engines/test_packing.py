"""Packing and ordering without a JVM: what a partition's rows become, and in which order."""

from collections import Counter
from typing import NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import NEVER_US
from include.fold.bucket import settle
from include.fold.definition import flat_map_groups_with_state
from include.fold.event_order import order_events
from include.fold.schemas import event_schema
from include.fold.states import States
from spark_jobs.engines.packing import (
    ADMITTED,
    BUCKET,
    CLOCK,
    COMMIT_US,
    EXCLUDED,
    HAPPENED_US,
    KIND,
    LATE,
    from_stream,
    packed_rows,
)


class Event(NamedTuple):
    key: str
    event_time_us: int
    note: str | None
    amount: float | None


class State(NamedTuple):
    seen: tuple[str, ...]


class Output(NamedTuple):
    key: str
    notes: tuple[str, ...]


def collect(key, events, state):
    notes = state.get.seen if state.exists else ()
    notes = (*notes, *(f"{e.note}{e.amount}" for e in events))
    state.update(State(notes))
    yield Output(key, notes)


FOLD = flat_map_groups_with_state(
    collect, key="key", event=Event, state=State, output=Output, output_mode="append"
)
SCHEMA = event_schema(FOLD)
EVENTS = st.builds(
    Event,
    st.sampled_from(["a", "b", "é", ""]),
    st.integers(-50, 50),
    st.none() | st.sampled_from(["x", "y"]),
    st.none() | st.sampled_from([0.5, 2.0]),
)


class Arrived(NamedTuple):
    event: Event
    bucket: int
    kind: int
    commit_us: int
    happened_us: int


ROWS = st.lists(
    st.builds(
        Arrived,
        EVENTS,
        st.integers(0, 4),
        st.sampled_from([ADMITTED, LATE, EXCLUDED, CLOCK]),
        st.integers(-50, 100),
        st.integers(-50, 50),
    ),
    min_size=1,
    max_size=30,
)


def as_table(rows: list[Arrived]) -> pa.Table:
    events = pa.Table.from_pylist([row.event._asdict() for row in rows], SCHEMA)
    marks = {BUCKET: pa.int32(), KIND: pa.int8(), COMMIT_US: pa.int64(), HAPPENED_US: pa.int64()}
    for name, kind in marks.items():
        values = [getattr(row, name.removeprefix("_")) for row in rows]
        events = events.append_column(name, pa.array(values, kind))
    return events


@given(ROWS)
def test_packing_keeps_what_is_admitted_and_counts_the_rest(rows):
    batches = packed_rows(as_table(rows), SCHEMA)
    packed = [row for batch in batches for row in batch.to_pylist()]
    assert [p["bucket"] for p in packed] == sorted({r.bucket for r in rows})
    for row in packed:
        own = [r for r in rows if r.bucket == row["bucket"]]
        events = [Event(**e) for e in from_stream(row["events"]).to_pylist()]
        assert Counter(events) == Counter(r.event for r in own if r.kind == ADMITTED)
        assert row["rows_in"] == sum(r.kind != CLOCK for r in own)
        late_us = [r.happened_us for r in own if r.kind == LATE]
        assert row["rows_late"] == len(late_us)
        assert row["late_first_us"] == min(late_us, default=NEVER_US)
        assert row["late_last_us"] == max(late_us, default=-NEVER_US)
        assert row["rows_excluded"] == sum(r.kind == EXCLUDED for r in own)
        assert row["commit_us"] == max(r.commit_us for r in own)


@given(st.lists(EVENTS, min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_events_are_ordered_by_key_time_and_whole_row(events, rng):
    shuffled = rng.sample(events, len(events))
    ordered = order_events(FOLD, pa.Table.from_pylist([e._asdict() for e in shuffled], SCHEMA))
    rows, runs = [Event(**row) for row in ordered.events.to_pylist()], ordered.runs()
    for run in runs:
        own = [e for e in events if e.key == run.key]
        nulls_first = lambda e: (e.event_time_us, [(v is not None, v) for v in e])  # noqa: E731
        assert rows[run.start : run.end] == sorted(own, key=nulls_first)
    assert {run.key for run in runs} == {e.key for e in events}


@given(st.lists(EVENTS, max_size=30), st.integers(-60, 60))
def test_settling_splits_at_until_and_reads_state_only_when_needed(events, until_us):
    reads = []

    def read_states() -> States:
        reads.append(1)
        return States(FOLD)

    waiting = pa.Table.from_pylist([e._asdict() for e in events], SCHEMA)
    settled = settle(FOLD, read_states, waiting, until_us, timeouts_due=False)
    before = [e for e in events if e.event_time_us < until_us]
    assert settled.rows_folded == len(before)
    assert settled.pending.num_rows == len(events) - len(before)
    assert len(reads) == (1 if before else 0)
    emitted = 0 if settled.outputs is None else settled.outputs.num_rows
    assert emitted == len(before)
