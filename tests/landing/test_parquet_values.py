"""Instants and numbers of Parquet, within nested values as by themselves; and as they are kept as text."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.landing.landed_file import open_rows
from include.landing.landed_values import to_event
from include.landing.rescue import Rescue, read_rescued
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
    rows = open_rows("a.parquet", parquet(pa.array([value], type_)), source)
    (item,) = rows.items()
    event = to_event(source, rows.values(item), NOW_US)
    without = replace(source, fields=())
    text = Rescue(without).text(rows.values(item))
    assert read_rescued(kind, "value", [text], times) == [event.values[0]]
