"""Instants of Parquet, within nested values as by themselves."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.landing.landed_file import open_rows
from include.landing.landed_row import to_event
from include.settings import Field, Source, Times

NOW_US = 2 * 10**15
UTC = pa.timestamp("us", "UTC")


def source_of(kind: str, times: Times | None = None) -> Source:
    field = Field(name="value", type=kind, comment="Value", required=False)
    times = times or Times()
    return Source(name="s", time_field="at", comment="S", fields=(field,), times=times)


def parquet(value: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"at": pa.array([0] * len(value), UTC), "value": value}), sink)
    return bytes(sink.getvalue())


def taken(kind: str, value: pa.Array) -> list[Any]:
    source = source_of(kind)
    rows = open_rows("a.parquet", parquet(value), source)
    return [to_event(source, rows.values(item), NOW_US).values[0] for item in rows.items()]


NANOS = [-2001, -2000, -1500, -1, 0, 999, 1500]
MICROS = [-3, -2, -2, -1, 0, 0, 1]


@pytest.mark.parametrize("zone", ["UTC", None])
def test_digits_below_the_microsecond_are_cut_off_also_before_1970(zone: str | None):
    nanos, name = pa.timestamp("ns", zone), "timestamp" if zone else "timestamp_ntz"
    assert taken(name, pa.array(NANOS, nanos)) == MICROS
    lists = pa.array([NANOS, None, [None, -1]], pa.list_(nanos))
    assert taken(f"array<{name}>", lists) == [MICROS, None, [None, -1]]
    structs = pa.array([{"a": [of]} for of in NANOS], pa.struct([("a", pa.list_(nanos))]))
    assert taken(f"struct<a: array<{name}>>", structs) == [{"a": [of]} for of in MICROS]
    maps = pa.array([[(-1500, -1)], None, []], pa.map_(nanos, nanos))
    assert taken(f"map<{name}, {name}>", maps) == [[(-2, -1)], None, []]
    first = -(2**63)
    assert taken(f"array<{name}>", pa.array([[first]], pa.list_(nanos))) == [[first // 1000]]
