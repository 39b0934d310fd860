"""Refused rows of Parquet and Avro are judged by their raw text as they were when they landed."""

import io
import json
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.landing.landed_file import open_rows, row_of_raw
from include.landing.landed_values import RefusedError, to_event
from include.landing.rescue import Rescue, read_rescued
from include.settings import Field, Source, Times

AT = datetime(2026, 1, 1, tzinfo=UTC)
NOW_US = int(AT.timestamp()) * 1_000_000
LONG = Decimal("0.1234567890123456789012345678")
TWICE = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))


def source_of(kind: str, path: str = "value") -> Source:
    field = Field(name="value", type=kind, path=path, comment="V", required=False)
    return Source(name="r", time_field="at", comment="R", fields=(field,))


def parquet(values: pa.Array) -> bytes:
    sink = io.BytesIO()
    at = pa.array([AT] * len(values), pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": at, "value": values}), sink)
    return sink.getvalue()


def judged(source: Source, values: Any) -> Any:
    try:
        return to_event(source, values, NOW_US).values
    except RefusedError as refusal:
        return refusal.code


def judged_twice(source: Source, values: pa.Array) -> list[Any]:
    """As it landed, and of its raw text."""
    rows = open_rows("a.parquet", parquet(values), source)
    (item,) = rows.items()
    again = row_of_raw("a.parquet", rows.raw(item), source)
    return [judged(source, rows.values(item)), judged(source, again)]


TYPED = [
    pa.array([date(2026, 1, 1)]),
    pa.array([AT], pa.timestamp("us", "UTC")),
    pa.array([AT.replace(tzinfo=None)], pa.timestamp("us")),
    pa.array([time(1)]),
    pa.array([timedelta(1)]),
    pa.array([LONG]),
    pa.array([Decimal(10**30 + 1)]),
    pa.array([b"a"]),
    pa.array([1.5]),
]


@pytest.mark.parametrize("values", TYPED, ids=lambda each: str(each.type))
def test_what_is_no_text_is_no_text_in_raw(values: pa.Array):
    nested = {
        "string": values,
        "array<string>": pa.array([values.to_pylist()], pa.list_(values.type)),
        "struct<a: bigint, b: string>": pa.array([{"a": 1, "b": values[0].as_py()}]),
        "map<string, string>": pa.array(
            [[("k", values[0].as_py())]], pa.map_(pa.string(), values.type)
        ),
    }
    for kind, of in nested.items():
        assert judged_twice(source_of(kind), of) == ["wrong_type"] * 2, kind


@pytest.mark.parametrize("kind", ["map<string, bigint>", "struct<a: bigint, b: string>"])
@pytest.mark.parametrize("key", [1, date(2026, 1, 1), LONG, "a"], ids=str)
def test_a_map_in_raw_has_its_own_keys_and_is_no_struct(kind: str, key: Any):
    values = pa.array([[(key, 1)]], pa.map_(pa.array([key]).type, pa.int64()))
    found = [([("a", 1)],)] if (key, kind[:3]) == ("a", "map") else ["wrong_type"]
    assert judged_twice(source_of(kind), values) == found * 2


def test_keys_that_are_texts_are_no_numbers_in_raw():
    values = pa.array([[("1", 1)]], pa.map_(pa.string(), pa.int64()))
    assert judged_twice(source_of("map<bigint, bigint>"), values) == ["wrong_type"] * 2


def test_a_path_does_not_lead_into_the_raw_text_of_a_map():
    source = source_of("bigint", path="value.a")
    values = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    assert judged_twice(source, values) == [(None,)] * 2


@pytest.mark.parametrize("kind", ["string", "timestamp"])
def test_a_date_is_no_text_of_a_time_that_is_written_as_days(kind: str):
    source = replace(source_of(kind), times=Times(format="%Y-%m-%d", zone="UTC"))
    found = judged_twice(source, pa.array([date(2026, 1, 1)]))
    assert found == ["wrong_type" if kind == "string" else "unreadable_time"] * 2


def test_a_column_of_two_fields_is_marked_for_both():
    text = Field(name="at_text", type="string", path="at", comment="T")
    source = replace(source_of("bigint"), fields=(text,))
    assert judged_twice(source, pa.array([1])) == ["wrong_type"] * 2


def test_a_key_that_a_map_has_twice_keeps_both_values():
    assert judged_twice(source_of("map<string, bigint>"), TWICE) == ["wrong_type"] * 2
    source = replace(source_of("bigint"), fields=())
    rows = open_rows("a.parquet", parquet(TWICE), source)
    (item,) = rows.items()
    for values in (item, row_of_raw("a.parquet", rows.raw(item), source)):
        text = Rescue(source).text(values)
        assert json.loads(text or "") == {"value": {"<map>": [["a", 1], ["a", 2]]}}
        assert read_rescued("map<string, bigint>", "value", [text]) == [None]


@pytest.mark.parametrize("kind", ["double", "float"])
def test_a_decimal_of_more_digits_than_a_double_has_is_taken_of_its_raw_text(kind: str):
    taken, again = judged_twice(source_of(kind), pa.array([LONG]))
    assert taken == again
    assert taken[0] == pytest.approx(float(LONG))


def test_raw_is_as_people_write_it_where_its_field_reads_the_same():
    fields = (
        Field(name="day", type="date", comment="D"),
        Field(name="price", type="decimal(38,28)", comment="P"),
        Field(name="tags", type="map<string, bigint>", comment="T"),
    )
    source = replace(source_of("bigint"), fields=fields)
    columns = {
        "at": pa.array([AT], pa.timestamp("us", "UTC")),
        "day": [date(2026, 1, 1)],
        "price": [LONG],
        "tags": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    }
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    rows = open_rows("a.parquet", sink.getvalue(), source)
    (item,) = rows.items()
    assert json.loads(rows.raw(item)) == {
        "at": "2026-01-01 00:00:00.000000Z",
        "day": "2026-01-01",
        "price": str(LONG),
        "tags": {"a": 1},
    }


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("binary", pa.array(["abcd"])),
        ("array<binary>", pa.array([["abcd"]])),
        ("struct<a: binary>", pa.array([{"a": "abcd"}])),
        ("map<string, binary>", pa.array([[("k", "abcd")]], pa.map_(pa.string(), pa.string()))),
        ("map<binary, string>", pa.array([[("abcd", "v")]], pa.map_(pa.string(), pa.string()))),
    ],
)
def test_a_text_is_no_base64(kind: str, values: pa.Array):
    assert judged_twice(source_of(kind), values) == ["wrong_type"] * 2


def test_a_text_beside_bytes_is_that_text():
    values = pa.array([{"a": b"A", "b": "abcd", "c": "abcd"}])
    source = source_of("struct<a: binary, b: string>")
    assert judged_twice(source, values) == [({"a": b"A", "b": "abcd"},)] * 2


def test_a_correction_of_parquet_has_its_bytes_in_base64():
    source = source_of("binary")
    values = row_of_raw("a.parquet", '{"at": "2026-01-01T00:00:00Z", "value": "QQ=="}', source)
    assert judged(source, values) == (b"A",)


def test_values_of_avro_are_in_raw_what_they_are():
    kinds = [("int", "date"), ("int", "time-millis"), ("long", "timestamp-millis")]
    types = [{"type": of, "logicalType": logical} for of, logical in kinds]
    given = [("string", date(2026, 1, 1)), ("string", time(1)), ("string", AT)]
    given += [("binary", "abcd"), ("string", b"alice")]
    for kind, (declared, value) in zip([*types, "string", "bytes"], given, strict=True):
        fields = [{"name": "at", "type": "string"}, {"name": "value", "type": kind}]
        sink = io.BytesIO()
        record = {"at": AT.isoformat(), "value": value}
        fastavro.writer(sink, {"type": "record", "name": "r", "fields": fields}, [record])
        source = source_of(declared)
        rows = open_rows("a.avro", sink.getvalue(), source)
        (item,) = rows.items()
        again = row_of_raw("a.avro", rows.raw(item), source)
        assert [judged(source, rows.values(item)), judged(source, again)] == ["wrong_type"] * 2
