"""Packing and ordering without a JVM: what a partition's rows become, and in which order."""

from collections import Counter
from typing import NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import NEVER_US
from include.fold.definition import flat_map_groups_with_state
from include.fold.schemas import event_schema
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


FOLD = flat_map_groups_with_state(
    lambda key, events, state: iter(()),
    key="key",
    event=Event,
    state=State,
    output=Output,
    output_mode="append",
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
