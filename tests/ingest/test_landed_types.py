"""Values of every type, by each format: exactly what was written, or refused."""

import base64
import csv
import io
import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from include.fold.records import SCALARS, SqlType, sql_type
from include.ingest.formats import open_rows, row_of_raw
from include.ingest.ingest import ingest
from include.ingest.landed_values import RefusedError, Rescue, read_rescued, reader_of_events
from include.ingest.parse_files import Parse
from include.lake.columns import arrow_type, sql_name
from include.lake.paths import Lake
from include.settings import Field, Source, Times
from tests.parsers import both_parsers
from tests.sql_types import types, values_of

AT = "2026-03-01T12:00:00Z"
AT_US = 1_772_366_400_000_000
UTC_TYPE = pa.timestamp("us", "UTC")


def source_of(kind: str, **options: Any) -> Source:
    field = Field(name="value", type=kind, comment="It", required=False, **options)
    return Source(name="things", time_field="at", comment="Things", fields=(field,))


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[SqlType, Any]:
    kind = draw(types)
    return kind, draw(values_of(kind))


def taken(source: Source, name: str, content: bytes) -> list[Any]:
    """Return the values of the file's rows, or the codes of refused ones; raw text comes to the same."""
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


def parquet(value: pa.Array, at: pa.Array | None = None, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    at = pa.array([AT_US] * len(value), UTC_TYPE) if at is None else at
    pq.write_table(pa.table({"at": at, "value": value}), sink, **options)
    return bytes(sink.getvalue())


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


def of_json(source: Source, value: str) -> list[Any]:
    return taken(source, "a.jsonl", f'{{"at": "{AT}", "value": {value}}}'.encode())


@given(typed_values())
def test_json_gives_what_was_written(typed):
    kind, value = typed
    source = source_of(str(kind))
    found = of_json(source, json_text(kind, value))
    assert stored(source, found) == stored(source, [value])


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
    source = source_of(str(kind))
    content = parquet(pa.array([value], arrow_type(str(kind))))
    assert stored(source, taken(source, "a.parquet", content)) == stored(source, [value])


NOT_OF_TYPE = {
    "decimal(4,2)": [
        "1.234",
        "100",
        '"NaN"',
        "1e999999",
        "1e-999999999",
        "true",
        f'"{"9" * 5_000}"',
    ],
    "int": ["2147483648"],
    "tinyint": ["128"],
    "bigint": ["9223372036854775808", "1.0", '"1"', "true"],
    "double": ["true", '"1.5"', "1" + "0" * 400],
    "string": ["1", '"\\ud800"'],
    "boolean": ["1", '"true"'],
    "float": ["1e39"],
    "date": ['"2026-02-30"', '"20260201"'],
    "binary": ['"a"'],
    "array<int>": ['[1, "2"]', "{}"],
    "struct<a: int>": ["[1]", '{"a": "1"}'],
    "map<int, int>": ['{"1": 1, "01": 2}', '{"a": 1}'],
}


@pytest.mark.parametrize(("kind", "value"), [(k, v) for k, of in NOT_OF_TYPE.items() for v in of])
def test_what_is_not_of_the_type_is_refused(kind, value):
    assert of_json(source_of(kind), value) == ["wrong_type"]


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
    assert of_json(source_of(kind), value) == [expected]


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
    assert of_json(source_of("timestamp", times=times), value) == [AT_US + minutes * MINUTE_US]


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
        (Times(format="%d/%m/%Y", zone="UTC"), '"2026-03-01"'),
    ],
)
def test_a_time_that_is_not_sure_is_refused(times, value):
    assert of_json(source_of("timestamp", times=times), value) == ["unreadable_time"]


def test_a_parquet_time_without_a_zone_is_of_the_declared_one():
    walls = pa.array([AT_US, AT_US], pa.timestamp("us"))
    source = replace(source_of("timestamp"), times=Times(zone="Europe/Berlin"))
    assert taken(source, "a.parquet", parquet(walls, walls)) == [AT_US - 60 * MINUTE_US] * 2


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
    found = taken(source_of(kind), "a.parquet", parquet(column))
    assert found in (["wrong_type"], ["unreadable_time"])


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


# Parquet


NANOS = [-2001, -2000, -1500, -1, 0, 999, 1500]
MICROS = [-3, -2, -2, -1, 0, 0, 1]


LATER = list(zip([0, 999, 1500], [0, 0, 1], strict=True))


@pytest.mark.parametrize("zone", ["UTC", None])
def test_digits_below_the_microsecond_are_cut_off(zone: str | None):
    nanos, name = pa.timestamp("ns", zone), "timestamp" if zone else "timestamp_ntz"
    struct, pairs = pa.struct([("a", pa.list_(nanos))]), pa.map_(nanos, nanos)
    for kind, type_, landed, expected in (
        (name, nanos, NANOS, MICROS),  # also before 1970
        (f"array<{name}>", pa.list_(nanos), [[1500], None, [None, -1000]], [[1], None, [None, -1]]),
        (f"struct<a: array<{name}>>", struct, [{"a": [n]} for n, _ in LATER], [{"a": [us]} for _, us in LATER]),
        (f"map<{name}, {name}>", pairs, [[(1500, 1)], None, []], [[(1, 0)], None, []]),
    ):  # fmt: skip
        content = parquet(pa.array(landed, type_))
        assert taken(source_of(kind), "a.parquet", content) == expected, kind


EPOCH_MS, GERMAN = Times(format="epoch_ms"), Times(format="%d.%m.%Y %H:%M", zone="Europe/Berlin")
AT_MICROS = 1_700_000_000_123_456


@pytest.mark.parametrize("times", [EPOCH_MS, GERMAN, Times(zone="Europe/Berlin")])
@pytest.mark.parametrize(
    ("kind", "value", "type_"),
    [
        ("timestamp", AT_MICROS, UTC_TYPE),
        ("timestamp", AT_MICROS, pa.timestamp("us", "Europe/Berlin")),
        ("timestamp_ntz", AT_MICROS, pa.timestamp("us")),
        ("array<timestamp>", [AT_MICROS, None], pa.list_(UTC_TYPE)),
        ("array<timestamp_ntz>", [AT_MICROS], pa.list_(pa.timestamp("us"))),
        ("map<timestamp, timestamp>", [(AT_MICROS, AT_MICROS)], pa.map_(UTC_TYPE, UTC_TYPE)),
        ("struct<a: timestamp>", {"a": AT_MICROS}, pa.struct([("a", UTC_TYPE)])),
    ],
)
def test_what_is_kept_of_an_instant_is_read_again_however_the_source_writes_times(
    times: Times, kind: str, value: Any, type_: pa.DataType
):
    source = source_of(kind, times=times)
    rows = open_rows("a.parquet", parquet(pa.array([value], type_)), source)
    (item,) = rows.items()
    text = Rescue(replace(source, fields=())).text(rows.values(item))
    expected = reader_of_events(source)(rows.values(item), AT_US).values
    assert read_rescued(kind, "value", [text], times) == [*expected]


@pytest.mark.parametrize("year", [1, 1600, 2263, 9999])
def test_times_in_96_bits_beyond_those_of_nanoseconds(year: int):
    source = replace(source_of("timestamp"), times=Times(zone="UTC"))  # these have no zone
    values = pa.array([f"{year:04}-12-31T00:00:00"]).cast(pa.timestamp("us")).cast(UTC_TYPE)
    stored = taken(source, "a.parquet", parquet(values))
    assert (
        taken(source, "a.parquet", parquet(values, use_deprecated_int96_timestamps=True)) == stored
    )


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_time_that_is_no_number_is_refused_alone(number: float):
    content = parquet(pa.array([1, 2]), pa.array([1.7e9, number]))
    source = replace(source_of("int"), times=Times(format="epoch_s"))
    assert taken(source, "a.parquet", content) == [1, "unreadable_time"]


NAMED = pa.array([[(b"alice", 1)]], pa.map_(pa.binary(), pa.int64()))
DECLARED_LATER = [
    ("double", pa.array([float("nan")]), "wrong_type"),
    ("date", pa.array([2**30], pa.date32()), "wrong_type"),
    ("array<bigint>", pa.array([[b"alice"]]), "wrong_type"),
    ("array<binary>", pa.array([[b"alice"]]), [b"alice"]),
    ("binary", pa.array([b"alice"]), b"alice"),
    ("map<binary, bigint>", NAMED, [(b"alice", 1)]),
]


@pytest.mark.parametrize(
    ("kind", "values", "expected"), DECLARED_LATER, ids=lambda each: str(each)[:30]
)
def test_what_was_rescued_is_read_as_if_it_landed_once_it_is_declared(
    kind: str, values: pa.Array, expected: Any
):
    """A value that is not of the field's type is null; one that is, is that value."""
    before = replace(source_of("int"), fields=())
    (item,) = open_rows("a.parquet", parquet(values), before).items()
    assert taken(source_of(kind), "a.parquet", parquet(values)) == [expected]
    read_again = read_rescued(kind, "value", [Rescue(before).text(item)])
    assert read_again == [None if expected == "wrong_type" else expected]


# In bronze


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
VALUES: dict[str, tuple[Any, Any]] = {
    "boolean": (True, True),
    "tinyint": (-128, -128),
    "smallint": (-(2**15), -(2**15)),
    "int": (-(2**31), -(2**31)),
    "bigint": (-(2**63), -(2**63)),
    "float": (0.25, 0.25),
    "double": (0.1, 0.1),
    "string": ("é", "é"),
    "binary": ("AAE=", b"\0\1"),
    "date": ("2026-03-01", date(2026, 3, 1)),
    "timestamp": (AT, NOON),
    "timestamp_ntz": ("2026-03-01T12:00:00", NOON.replace(tzinfo=None)),
    "decimal(38,18)": ("1.000000000000000001", Decimal("1.000000000000000001")),
    "array<map<string, date>>": ([{"a": "2026-03-01"}, None], [[("a", date(2026, 3, 1))], None]),
    "struct<at: timestamp, `a b`: array<int>>": ({"at": AT, "a b": []}, {"at": NOON, "a b": []}),
}
NAMES = {kind: f"f{number}" for number, kind in enumerate(VALUES)}
EVERY_TYPE = Source(
    name="things",
    time_field="at",
    comment="Things",
    fields=tuple(
        Field(name=name, type=kind, comment=kind, required=False) for kind, name in NAMES.items()
    ),
)


@both_parsers
def test_every_type_is_stored(lake: Lake, parse: Parse):
    assert set(SCALARS) < set(VALUES)
    row = {NAMES[kind]: landed for kind, (landed, _) in VALUES.items()}
    landing = Path(lake.landing(EVERY_TYPE.name))
    landing.mkdir(parents=True)
    (landing / "a.jsonl").write_text(f'{json.dumps({"at": AT, **row})}\n{{"at": "{AT}"}}\n')

    assert ingest(lake, EVERY_TYPE, parse=parse).rows_bronze == 2

    bronze = DeltaTable(lake.bronze(EVERY_TYPE.name)).to_pyarrow_table()
    found = {kind: bronze[name] for kind, name in NAMES.items()}
    assert [column.type for column in found.values()] == [arrow_type(kind) for kind in found]
    assert [sql_name(column.type) for column in found.values()] == [
        str(sql_type(kind)) for kind in found
    ]
    for kind, column in found.items():
        assert sorted(column.to_pylist(), key=lambda value: value is None) == [
            VALUES[kind][1],
            None,
        ], kind
