"""Files as people have them: found by content, read as the source declares, refused with the cause."""

import codecs
import gzip
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.ingest.formats import open_rows, row_of_raw
from include.ingest.landed_values import RefusedError, UnreadableFileError, reader_of_events
from include.ingest.parse_files import outcomes_of_content, value_columns
from include.settings import Csv, Field, Source
from tests.landed_files import parquet

NOON = "2026-03-01T12:00:00Z"
NOON_US = 1_772_366_400_000_000
FIELDS = (
    Field(name="key", type="string", comment="Key"),
    Field(name="count", type="bigint", comment="Count", required=False),
)


def source_of(*more: Field, **settings: Any) -> Source:
    retained = {"max_file_bytes": 100_000} | settings
    return Source(
        name="things", time_field="at", comment="Things", fields=(*FIELDS, *more), **retained
    )


SOURCE = source_of()


def taken(name: str, content: bytes, source: Source = SOURCE) -> list[Any]:
    """Return the values of each row, or the code of its refusal; its raw text comes to the same."""
    rows, to_event = open_rows(name, content, source), reader_of_events(source)

    def judged(read: Callable[[], Any]) -> Any:
        try:
            return to_event(read(), NOON_US).values
        except RefusedError as refusal:
            return refusal.code

    found = []
    for item in rows.items():
        values = judged(lambda item=item: rows.values(item))
        assert judged(lambda item=item: row_of_raw(name, rows.raw(item), source)) == values
        found.append(values)
    return found


def unreadable(name: str, content: bytes, source: Source = SOURCE) -> str:
    with pytest.raises(UnreadableFileError) as caught:
        open_rows(name, content, source)
    return str(caught.value)


# JSON


def row(key: Any, **more: Any) -> dict[str, Any]:
    return {"key": key, "at": NOON, **more}


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.ndjson", "a.ndjson.gz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_of_objects_has_a_row_for_each(name: str, indent: int | None):
    text = json.dumps([row("a", count=1), row("[,]{\n"), 7, row(None)], indent=indent)
    content = codecs.BOM_UTF8 + f" \n{text}\n\n".encode()
    content = gzip.compress(content) if name.endswith("gz") else content
    expected = [("a", 1), ("[,]{\n", None), "not_an_object", "missing_field"]
    assert taken(name, content) == expected


def test_objects_over_several_lines_are_rows():
    texts = [json.dumps(row(str(number)), indent=number) for number in (1, 2, 3)]
    assert taken("a.json", "\r\n".join(texts).encode()) == [(key, None) for key in "123"]
    assert taken("a.json", texts[0].encode()) == [("1", None)]


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none(), max_size=3)))
def test_an_array_is_read_as_it_was_written(objects: list[dict[str, Any]]):
    for indent in (None, 1):
        rows = open_rows("a.json", json.dumps(objects, indent=indent).encode(), SOURCE)
        assert [rows.values(item) for item in rows.items()] == objects


@pytest.mark.parametrize(
    "text",
    [
        '[{"key": 1},\n{"key": NaN}]',
        '[{"key": 1},\n]',
        '[{"key": 1}\n{"key": 2}]',
        '[{"key": 1}\n',
        '[{"key": 1}]\n{"key": 2}',
        '{\n"key": 1}\n{"key": ',
        f'[{{"key": 1}},\n{{"key": {"1" * 5000}}}]',
        '[{"key": 1},\n' + "[" * 100_000,
    ],
)
def test_an_array_or_objects_over_lines_that_are_not_whole_are_refused_with_the_line(text: str):
    assert re.search("from line [123] on", unreadable("a.json", text.encode()))
    assert "line 1 " not in unreadable("a.json", f"\n{text}".encode())


# CSV


def csv_source(**declared: Any) -> Source:
    return source_of(csv=Csv(**declared))


@pytest.mark.parametrize(
    ("declared", "content"),
    [
        (Csv(delimiter=";"), f"key;at;count\na;{NOON};1\n'b,\";{NOON};\n"),
        (Csv(delimiter="\t"), f"key\tat\tcount\na\t{NOON}\t1\n'b,\"\t{NOON}\t\n"),
        (Csv(quote=None), f"key,at,count\na,{NOON},1\n'b;\",{NOON},\n"),
        (Csv(quote="'"), f"key,at,count\na,{NOON},1\n'''b,\"',{NOON},\n"),
        (Csv(header=("key", "at", "count")), f'a,{NOON},1\n"\'b,""",{NOON},\n'),
    ],
)
def test_csv_is_read_as_it_is_declared(declared: Csv, content: str):
    found = taken("a.csv", content.encode(), source_of(csv=declared))
    assert [key.replace(";", ",") for key, _ in found] == ["a", "'b,\""]
    assert [count for _, count in found] == [1, None]


def test_numbers_of_csv_have_the_declared_decimal_point():
    field = Field(name="total", type="decimal(12,2)", required=False, comment="")
    source = source_of(field, csv=Csv(delimiter=";", decimal=","))
    rows = f"key;at;total\na;{NOON};-12,50\nb;{NOON};12.5\n"
    assert taken("a.csv", rows.encode(), source) == [("a", None, Decimal("-12.50")), "wrong_type"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "latin-1"])
def test_csv_has_the_declared_encoding(encoding: str):
    content = f"key,at\nzoë,{NOON}\n".encode(encoding)
    assert taken("a.csv", content, csv_source(encoding=encoding)) == [("zoë", None)]


# Packed


def test_gzip_is_known_by_its_first_bytes():
    content = gzip.compress(json.dumps(row("a")).encode())
    for name in ("a.jsonl", "a.jsonl.gz", "a.JSON"):
        assert taken(name, content) == [("a", None)]
    assert taken("a.parquet", gzip.compress(parquet(key=["a"], at=[NOON]))) == [("a", None)]
    assert "not UTF-8" in unreadable("a.jsonl", gzip.compress(content))


# Avro

AVRO_FIELDS: list[dict[str, Any]] = [
    {"name": "key", "type": ["null", "string"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "count", "type": ["null", "long"]},
]


def avro_of(kind: Any, value: object) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(kind), value)
    return sink.getvalue()


def container(schema: bytes, blocks: list[tuple[int, bytes]]) -> bytes:
    meta = avro_of({"type": "map", "values": "bytes"}, {"avro.schema": schema})
    parts = [avro_of("long", count) + avro_of("bytes", data) for count, data in blocks]
    return b"".join(part + bytes(16) for part in [b"Obj\1" + meta, *parts])


def chained(count: int) -> list[dict[str, Any]]:
    """Each of two fields of the next, which is written at its first one."""
    last: Any = {"type": "record", "name": "r0", "fields": [{"name": "x", "type": ["null", "int"]}]}
    for number in range(1, count):
        two = [{"name": "a", "type": last}, {"name": "b", "type": f"r{number - 1}"}]
        last = {"type": "record", "name": f"r{number}", "fields": two}
    return [{"name": "deep", "type": last}]


def of_namespace(*fields: dict[str, Any]) -> dict[str, Any]:
    named = {"type": "record", "name": "n", "namespace": "of"}
    return {**named, "fields": [*AVRO_FIELDS, *fields]}


NEVER_ENDS = ("[", '{"type":"record","name":"n","fields":[{"name":"a","type":')


@pytest.mark.parametrize(
    ("schema", "blocks", "says"),
    [
        *[((each * depth).encode(), [], "not a whole Avro file") for each in NEVER_ENDS for depth in (70, 900, 100_000)],
        ("string", [], "items are no records"),
        ({"type": "record", "name": "n", "fields": [{"name": "next", "type": ["null", "n"]}]}, [], "holds itself"),
        (of_namespace({"name": "next", "type": ["null", "of.n"]}), [], "holds itself"),
        (of_namespace(*chained(70)), [], "nested too deeply"),
        ({"type": "record", "name": "n", "fields": []}, [], "Avro without at, key: it has []"),
        ({"type": "record", "name": "n", "fields": AVRO_FIELDS}, [(2**40, b"abc")], "with 1099511627776 records"),
        ({"type": "record", "name": "n", "fields": AVRO_FIELDS}, [(1, b"abc")], "not a whole Avro file"),
        ({"type": "record", "name": "n", "fields": AVRO_FIELDS}, [(-1, b"abc")], "not a whole Avro file"),
        ({"type": "record", "name": "n", "fields": AVRO_FIELDS}, [(1, b"\0" * 9)], "more bytes than its records"),
    ],
)  # fmt: skip
def test_a_hostile_avro_file_is_unreadable(schema: Any, blocks: Any, says: str):
    written = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    assert says in unreadable("a.avro", container(written, blocks))


# Folders


def outcomes(name: str, content: bytes, source: Source) -> list[dict[str, Any]]:
    opened = partial(open_rows, name, content, source)
    return list(outcomes_of_content(opened, source, name, NOON_US))


DAY = Field(name="day", type="date", path="dt", from_folder=True, comment="Day of its folder")
SHOP = Field(name="shop", type="string", from_folder=True, required=False, comment="Shop")
HOUR = Field(name="hour", type="int", from_folder=True, required=False, comment="Hour")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", json.dumps(row("a", dt="x", shop="y")).encode()),
        ("a.csv", f"key,at,dt\na,{NOON},x\n".encode()),
        ("a.parquet", parquet(key=["a"], at=[NOON], dt=["x"])),
    ],
)
def test_folders_say_what_all_rows_of_a_file_have(name: str, content: bytes):
    source, day = source_of(DAY, SHOP, HOUR), date(2026, 11, 20)
    for folder, known in (
        ("dt=2026-11-20/shop=A%2FB/x/hour=07", ("a", None, day, "A/B", 7)),
        ("dt=2026-11-20/shop=__HIVE_DEFAULT_PARTITION__", ("a", None, day, None, None)),
    ):
        found, _ = outcomes(f"{folder}/{name}", content, source)
        assert tuple(map(found.get, value_columns(source))) == known
        raw = json.dumps(row("a", dt="x", shop="y"))
        again = row_of_raw(f"{folder}/{name}", raw, source)
        assert reader_of_events(source)(again, NOON_US).values == known
    name = f"dt=2026-11-20/hour=x/{name}"
    refusal, _ = outcomes(name, content, source)
    assert refusal["reason_code"] == "wrong_type"


@pytest.mark.parametrize("folder", ["", "day=2026-11-20/", "dt=2026-11-20/dt=2026-11-21/"])
def test_a_file_outside_its_folder_is_unreadable(folder: str):
    content = json.dumps(row("a")).encode()
    refusal, _ = outcomes(f"{folder}a.jsonl", content, source_of(DAY))
    assert refusal["reason_code"] == "unreadable_file"


def test_a_row_without_a_header_line_whose_first_cell_is_json_is_not_taken_for_a_correction():
    csv = Csv(delimiter=";", quote=None, header=("key", "at", "count"))
    content = f'{{"a":1}};{NOON};2\n{{"a":1}};{NOON};x\n{{;{NOON};\n'.encode()
    assert taken("a.csv", content, source_of(csv=csv)) == [
        ('{"a":1}', 2),
        "wrong_type",
        ("{", None),
    ]
    correction = json.dumps({"key": "k", "at": NOON})
    assert row_of_raw("a.csv", correction, source_of(csv=csv)) == json.loads(correction)


def test_a_header_line_that_begins_with_a_brace_is_none_of_a_correction():
    source = replace(SOURCE, fields=(Field(name="key", type="string", path="{k}", comment="Key"),))
    content = f"{{k}},at\na,{NOON}\nb,x\n".encode()
    assert taken("a.csv", content, source) == [("a",), "unreadable_time"]
