"""Entries of a record, on instants of a few ticks."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from hypothesis import strategies as st

from include.lake.generations import GenerationRow, read_generations
from include.lake.paths import Lake
from include.registry import stream_named, stream_names
from include.stream.manifest import StreamIdentity
from include.stream.record import RecordEntry, commit_alone, recorded
from include.stream.stream_identity import code_fingerprint

NO_ROWS = pa.schema([("emitted_at", pa.timestamp("us", tz="UTC")), ("emitted_date", pa.date32())])
TICKS = 10
CODES = ("a", "b")
IDENTITY = StreamIdentity(
    stream="user_counts",
    source="user_events",
    output_mode="append",
    time_column="event_time",
    delay_us=1,
    code="a",
    state_schema="",
    since_us=None,
)


def entry(
    number: int, kind: str, from_: int | None, until: int | None, **columns: Any
) -> RecordEntry:
    known: dict[str, Any] = {
        "generation": 1,
        "run_id": f"run-{number}",
        "delay_us": 1,
        "codes": ("a",),
    }
    return RecordEntry(number=number, kind=kind, from_us=from_, until_us=until, **known | columns)


@st.composite
def entries(draw: st.DrawFn, number: int) -> RecordEntry:
    kind = draw(st.sampled_from(["live", "restate", "rebuild", "rebuild"]))
    from_ = draw(st.none() | st.integers(0, TICKS - 1))
    until = draw(st.integers((from_ or 0) + 1, TICKS))
    codes = tuple(draw(st.lists(st.sampled_from(CODES), min_size=1, max_size=2, unique=True)))
    bronze = draw(st.none() | st.integers(0, 5)) if kind == "live" else draw(st.integers(0, 5))
    return entry(number, kind, from_, until, codes=codes, bronze_ingested_at_us=bronze)


@st.composite
def entry_lists(draw: st.DrawFn) -> list[RecordEntry]:
    return [draw(entries(number)) for number in range(1, draw(st.integers(0, 8)) + 1)]


def covers(one: RecordEntry, tick: int) -> bool:
    from_, until = one.from_us, one.until_us
    return until is not None and (from_ is None or from_ <= tick) and tick < until


def hides(one: RecordEntry, tick: int) -> bool:
    """True if the entry hides earlier ones at the tick."""
    is_later = one.from_us is None or one.from_us <= tick
    return covers(one, tick) or (one.kind == "rebuild" and is_later)


def entry_at(entries: list[RecordEntry], tick: int) -> RecordEntry | None:
    """Whose rows the table has at the tick, one entry after the other."""
    found = None
    for one in entries:
        if hides(one, tick):
            found = one if covers(one, tick) else None
    return found


def record(lake: Lake, made: RecordEntry, stream: str = "user_counts", **known: Any) -> None:
    """The entry in the record of a lake that was set up by hand, over a table without rows.

    By the code of now, unless it names another than `entry` does.
    """
    if made.codes == CODES[:1] and stream in stream_names():
        made = replace(made, codes=(code_fingerprint(stream_named(stream), None),))
    path = lake.table(stream)
    if not lake.is_delta_table(path):
        DeltaTable.create(path, schema=NO_ROWS, partition_by=["emitted_date"])
    before = read_generations(lake, stream).current or {}
    pinned = {"buckets": 32, "state_partitions": 4}
    named = {"stream": stream, "generation": made.generation}
    row = GenerationRow({**pinned, **before, **known.pop("row", {}), **named})
    commit_alone(
        lake, replace(recorded(read_generations(lake, stream)).with_entry(made), row=row, **known)
    )
