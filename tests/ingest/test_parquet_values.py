"""Instants and numbers of Parquet, within nested values as by themselves; and as they are kept as text."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.ingest.formats import open_rows
from include.ingest.landed_values import RefusedError, Rescue, read_rescued, reader_of_events
from include.settings import Field, Source, Times

NOW_US = 2 * 10**15
UTC = pa.timestamp("us", "UTC")


def source_of(kind: str, times: Times | None = None) -> Source:
    field = Field(name="value", type=kind, comment="Value", required=False)
    times = times or Times()
    return Source(name="s", time_field="at", comment="S", fields=(field,), times=times)


def parquet(value: pa.Array, at: pa.Array | None = None, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    at = pa.array([0] * len(value), UTC) if at is None else at
    pq.write_table(pa.table({"at": at, "value": value}), sink, **options)
    return bytes(sink.getvalue())


def judged(source: Source, row: Any) -> Any:
    """The value that is taken of a row, or the code of its refusal."""
    try:
        return reader_of_events(source)(row, NOW_US).values[-1]
    except RefusedError as refusal:
        return refusal.code


def read(source: Source, content: bytes) -> list[Any]:
    rows = open_rows("a.parquet", content, source)
    return [judged(source, rows.values(item)) for item in rows.items()]


def taken(kind: str, value: pa.Array) -> list[Any]:
    return read(source_of(kind), parquet(value))


NANOS = [-2001, -2000, -1500, -1, 0, 999, 1500]
MICROS = [-3, -2, -2, -1, 0, 0, 1]


LATER_NANOS, LATER_MICROS = [0, 999, 1500], [0, 0, 1]


@pytest.mark.parametrize("zone", ["UTC", None])
def test_digits_below_the_microsecond_are_cut_off(zone: str | None):
    nanos, name = pa.timestamp("ns", zone), "timestamp" if zone else "timestamp_ntz"
    assert taken(name, pa.array(NANOS, nanos)) == MICROS  # also before 1970
    lists = pa.array([LATER_NANOS, None, [None, -1000]], pa.list_(nanos))
    assert taken(f"array<{name}>", lists) == [LATER_MICROS, None, [None, -1]]
    structs = pa.array([{"a": [of]} for of in LATER_NANOS], pa.struct([("a", pa.list_(nanos))]))
    assert taken(f"struct<a: array<{name}>>", structs) == [{"a": [of]} for of in LATER_MICROS]
    maps = pa.array([[(1500, 1)], None, []], pa.map_(nanos, nanos))
    assert taken(f"map<{name}, {name}>", maps) == [[(1, 0)], None, []]


EPOCH_MS, GERMAN = Times(format="epoch_ms"), Times(format="%d.%m.%Y %H:%M", zone="Europe/Berlin")
AT = 1_700_000_000_123_456


@pytest.mark.parametrize("times", [EPOCH_MS, GERMAN, Times(zone="Europe/Berlin")])
@pytest.mark.parametrize(
    ("kind", "value", "type_"),
    [
        ("timestamp", AT, UTC),
        ("timestamp", AT, pa.timestamp("us", "Europe/Berlin")),
        ("timestamp_ntz", AT, pa.timestamp("us")),
        ("array<timestamp>", [AT, None], pa.list_(UTC)),
        ("array<timestamp_ntz>", [AT], pa.list_(pa.timestamp("us"))),
        ("map<timestamp, timestamp>", [(AT, AT)], pa.map_(UTC, UTC)),
        ("struct<a: timestamp>", {"a": AT}, pa.struct([("a", UTC)])),
    ],
)
def test_what_is_kept_of_an_instant_is_read_again_however_the_source_writes_times(
    times: Times, kind: str, value: Any, type_: pa.DataType
):
    source = source_of(kind, times)
    content = parquet(pa.array([value], type_))
    rows = open_rows("a.parquet", content, source)
    (item,) = rows.items()
    text = Rescue(replace(source, fields=())).text(rows.values(item))
    assert read_rescued(kind, "value", [text], times) == read(source, content)


@pytest.mark.parametrize("year", [1, 1600, 2263, 9999])
def test_times_in_96_bits_beyond_those_of_nanoseconds(year: int):
    source = source_of("timestamp", Times(zone="UTC"))  # these have no zone
    values = pa.array([f"{year:04}-12-31T00:00:00"]).cast(pa.timestamp("us")).cast(UTC)
    stored = read(source, parquet(values))
    assert read(source, parquet(values, use_deprecated_int96_timestamps=True)) == stored


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_time_that_is_no_number_is_refused_alone(number: float):
    content = parquet(pa.array([1, 2]), pa.array([1.7e9, number]))
    assert read(source_of("int", Times(format="epoch_s")), content) == [1, "unreadable_time"]


NAMED = pa.array([[(b"alice", 1)]], pa.map_(pa.binary(), pa.int64()))
LATER = [
    ("double", pa.array([float("nan")]), "wrong_type"),
    ("date", pa.array([2**30], pa.date32()), "wrong_type"),
    ("array<bigint>", pa.array([[b"alice"]]), "wrong_type"),
    ("array<binary>", pa.array([[b"alice"]]), [b"alice"]),
    ("binary", pa.array([b"alice"]), b"alice"),
    ("map<binary, bigint>", NAMED, [(b"alice", 1)]),
]


@pytest.mark.parametrize(("kind", "values", "expected"), LATER, ids=lambda each: str(each)[:30])
def test_what_was_rescued_is_read_as_if_it_landed_once_it_is_declared(
    kind: str, values: pa.Array, expected: Any
):
    """A value that is not of the field's type is null; one that is, is that value."""
    before = replace(source_of("int"), fields=())
    (item,) = open_rows("a.parquet", parquet(values), before).items()
    assert judged(source_of(kind), item) == expected
    read_again = read_rescued(kind, "value", [Rescue(before).text(item)])
    assert read_again == [None if expected == "wrong_type" else expected]
