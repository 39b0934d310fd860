"""Values of every type, by each format: exactly what was written, or refused."""

import base64
import csv
import io
import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.records import SqlType
from include.ingest.formats import open_rows, row_of_raw
from include.ingest.landed_values import RefusedError, reader_of_events
from include.lake.columns import arrow_type
from include.settings import Field, Source, Times
from tests.sql_types import types, values_of

AT = "2026-03-01T12:00:00Z"
AT_US = 1_772_366_400_000_000


def source_of(kind: str, **options: Any) -> Source:
    field = Field(name="value", type=kind, comment="It", required=False, **options)
    return Source(name="things", time_field="at", comment="Things", fields=(field,))


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[SqlType, Any]:
    kind = draw(types)
    return kind, draw(values_of(kind))


def taken(source: Source, name: str, content: bytes) -> list[Any]:
    """What comes of the file's values; the code of a refused row. Read again of its raw text, too."""
    rows, to_event, found = open_rows(name, content, source), reader_of_events(source), []
    for item in rows.items():
        try:
            value = to_event(rows.values(item), AT_US).values[0]
        except RefusedError as refusal:
            assert rows.raw(item)
            found.append(refusal.code)
            continue
        again = to_event(row_of_raw(name, rows.raw(item), source), AT_US).values[0]
        assert stored(source, [again]) == stored(source, [value])
        found.append(value)
    return found


def stored(source: Source, values: list[Any]) -> list[Any]:
    return pa.array(values, arrow_type(source.fields[0].type)).to_pylist()


def json_text(kind: SqlType, value: Any) -> str:
    """JSON as other languages write it: decimals and integers are numbers."""
    if value is None:
        return "null"
    if kind.name == "array":
        return f"[{', '.join(json_text(kind.parts[0], item) for item in value)}]"
    if kind.name in ("struct", "map"):
        if kind.name == "struct":
            members = [(n, k, value[n]) for n, k in zip(kind.names, kind.parts, strict=True)]
        else:
            members = [(as_text(key), kind.parts[1], of) for key, of in value]
        return f"{{{', '.join(f'{json.dumps(n)}: {json_text(k, of)}' for n, k, of in members)}}}"
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value if isinstance(value, bool | int | float) else as_text(value))


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


@given(typed_values())
def test_json_gives_what_was_written(typed):
    kind, value = typed
    source = source_of(str(kind))
    line = f'{{"at": "{AT}", "value": {json_text(kind, value)}}}'
    assert stored(source, taken(source, "a.jsonl", line.encode())) == stored(source, [value])


@given(typed_values())
def test_csv_gives_what_was_written(typed):
    kind, value = typed
    source, text = source_of(str(kind)), io.StringIO()
    cell = json_text(kind, value) if kind.parts else as_text(value)
    csv.writer(text).writerows([["at", "value"], [AT, cell]])
    expected = stored(source, [value if cell else None])  # an empty cell is null
    assert stored(source, taken(source, "a.csv", text.getvalue().encode())) == expected


@given(typed_values())
def test_parquet_gives_what_was_written(typed):
    kind, value = typed
    source, sink = source_of(str(kind)), io.BytesIO()
    at = pa.array([AT_US], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": at, "value": pa.array([value], arrow_type(str(kind)))}), sink)
    assert stored(source, taken(source, "a.parquet", sink.getvalue())) == stored(source, [value])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("decimal(4,2)", "1.234"),
        ("decimal(4,2)", "100"),
        ("decimal(4,2)", '"NaN"'),
        ("decimal(4,2)", "1e999999"),
        ("decimal(4,2)", "1e-999999999"),
        ("decimal(4,2)", "true"),
        ("decimal(4,2)", f'"{"9" * 5_000}"'),  # Python converts no text of so many digits
        ("int", "2147483648"),
        ("tinyint", "128"),
        ("bigint", "9223372036854775808"),
        ("bigint", "1.0"),
        ("bigint", '"1"'),
        ("bigint", "true"),
        ("double", "true"),
        ("double", '"1.5"'),
        ("double", "1" + "0" * 400),
        ("string", "1"),
        ("string", '"\\ud800"'),
        ("boolean", "1"),
        ("boolean", '"true"'),
        ("float", "1e39"),
        ("date", '"2026-02-30"'),
        ("date", '"20260201"'),
        ("binary", '"a"'),
        ("array<int>", '[1, "2"]'),
        ("array<int>", "{}"),
        ("struct<a: int>", "[1]"),
        ("struct<a: int>", '{"a": "1"}'),
        ("map<int, int>", '{"1": 1, "01": 2}'),
        ("map<int, int>", '{"a": 1}'),
    ],
)
def test_what_is_not_of_the_type_is_refused(kind, value):
    line = f'{{"at": "{AT}", "value": {value}}}'
    assert taken(source_of(kind), "a.jsonl", line.encode()) == ["wrong_type"]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("decimal(4,2)", "12.50", Decimal("12.5")),
        ("decimal(4,2)", "1.5e1", Decimal(15)),
        ("decimal(4,2)", '"-99.99"', Decimal("-99.99")),
        ("decimal(4,2)", "-0.0", Decimal(0)),
        ("decimal(4,2)", "0e50", Decimal(0)),
        ("struct<a: int, b: int>", '{"a": 1, "c": 2}', {"a": 1, "b": None}),
    ],
)
def test_what_is_the_same_in_another_writing_is_taken(kind, value, expected):
    line = f'{{"at": "{AT}", "value": {value}}}'
    assert taken(source_of(kind), "a.jsonl", line.encode()) == [expected]


MINUTE_US = timedelta(minutes=1) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("times", "value", "minutes"),
    [
        (Times(), '"2026-03-01T12:00:00Z"', 0),
        (Times(format="epoch_s"), "1772366400", 0),
        (Times(format="epoch_s"), "1772366460.0", 1),
        (Times(format="epoch_ms"), "1772366460000", 1),
        (Times(format="epoch_us"), '"1772366460000000"', 1),
        (Times(zone="Europe/Berlin"), '"2026-03-01T13:00:00"', 0),
        (Times(zone="Europe/Berlin"), '"2026-03-01T12:00:00Z"', 0),
        (Times(format="%d/%m/%Y %H:%M", zone="UTC"), '"01/03/2026 12:01"', 1),
        (Times(format="%Y%m%d%H%M%z"), '"202603011201+0000"', 1),
    ],
)
def test_times_are_read_as_they_are_declared(times, value, minutes):
    line = f'{{"at": "{AT}", "value": {value}}}'
    source = source_of("timestamp", times=times)
    assert taken(source, "a.jsonl", line.encode()) == [AT_US + minutes * MINUTE_US]


@pytest.mark.parametrize(
    ("times", "value"),
    [
        (Times(), "1772366400"),
        (Times(), '"2026-03-01T12:00:00"'),
        (Times(format="epoch_ms"), f'"{AT}"'),
        (Times(format="epoch_ms"), "true"),
        (Times(format="epoch_s"), "1e13"),
        (Times(format="epoch_s"), "1e30"),
        (Times(format="epoch_s"), '"1' + "0" * 19 + '"'),
        (Times(zone="Europe/Berlin"), '"2026-03-29T02:30:00"'),
        (Times(zone="Europe/Berlin"), '"2026-10-25T02:30:00"'),
        (Times(format="%d/%m/%Y"), '"01/03/2026"'),
        (Times(format="%d/%m/%Y", zone="UTC"), '"2026-03-01"'),
    ],
)
def test_a_time_that_is_not_sure_is_refused(times, value):
    line = f'{{"at": "{AT}", "value": {value}}}'
    found = taken(source_of("timestamp", times=times), "a.jsonl", line.encode())
    assert found == ["unreadable_time"]


def test_a_parquet_time_without_a_zone_is_of_the_declared_one():
    sink = io.BytesIO()
    walls = pa.array([AT_US, AT_US], pa.timestamp("us"))
    pq.write_table(pa.table({"at": walls, "value": walls}), sink)
    source = Source(
        name="things",
        time_field="at",
        comment="Things",
        times=Times(zone="Europe/Berlin"),
        fields=(Field(name="value", type="timestamp", comment="It"),),
    )
    assert taken(source, "a.parquet", sink.getvalue()) == [AT_US - 60 * MINUTE_US] * 2


MOST = 2**62


@pytest.mark.parametrize(
    "column",
    [
        pa.array([10**7], pa.int32()).cast(pa.date32()),
        pa.array([MOST], pa.timestamp("us")),
        pa.array([[MOST]], pa.list_(pa.timestamp("us", "UTC"))),
        pa.array([[MOST]], pa.list_(pa.timestamp("ms", "UTC"))),
        pa.array([{"a": MOST}], pa.struct([("a", pa.timestamp("us"))])),
        pa.array([1], pa.time64("ns")),
        pa.array([MOST], pa.duration("s")),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize(
    "kind", ["string", "date", "timestamp_ntz", "array<timestamp>", "struct<a: timestamp_ntz>"]
)
def test_a_parquet_value_that_python_has_not_is_refused_alone(column, kind):
    sink, source = io.BytesIO(), source_of(kind)
    at = pa.array([AT_US], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": at, "value": column}), sink)
    assert taken(source, "a.parquet", sink.getvalue()) in (["wrong_type"], ["unreadable_time"])


def test_a_nested_field_is_reached_by_its_path():
    fields = (
        Field(name="user_id", type="string", path="payload.user.id", comment="Who"),
        Field(name="amount", type="decimal(12,2)", path="payload.amount", comment="What"),
    )
    source = Source(name="things", time_field="meta.at", comment="Things", fields=fields)
    row = {"meta": {"at": AT}, "payload": {"user": {"id": "ann"}, "amount": "1.50"}}
    flat = {"meta.at": AT, "payload.user.id": "ann", "payload.amount": "1.50"}
    assert reader_of_events(source)(row, AT_US) == (("ann", Decimal("1.50")), AT_US)
    assert reader_of_events(source)(flat, AT_US) == (("ann", Decimal("1.50")), AT_US)
    with pytest.raises(RefusedError) as caught:
        reader_of_events(source)(row | {"payload": {"user": "ann", "amount": 1}}, AT_US)
    assert (caught.value.code, caught.value.reason) == ("missing_field", "payload.user.id")

    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row, flat | row]), sink)
    rows = open_rows("a.parquet", sink.getvalue(), source)
    values = [reader_of_events(source)(rows.values(item), AT_US).values for item in rows.items()]
    assert values == [("ann", Decimal("1.50"))] * 2
