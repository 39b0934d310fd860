"""From the bytes of a file to its rows: each format, and each way to be unreadable."""

import gzip
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.ingest import parse_files
from include.ingest.connector import Batch
from include.ingest.formats import open_rows, row_of_raw
from include.ingest.landed_values import RefusedError, UnreadableFileError, reader_of_events
from include.ingest.parse_files import parse_here
from include.ingest.source_connector import landed_files, landing_root, outcomes_of_file
from include.lake.paths import Lake
from include.settings import Field, Source

SOURCE = Source(
    name="readings",
    time_field="at",
    comment="Readings",
    max_file_bytes=10_000,
    fields=(
        Field(name="key", type="string", comment="Key"),
        Field(name="count", type="bigint", comment="Count", required=False),
        Field(name="amount", type="double", comment="Amount", required=False),
    ),
)
NOON = "2026-01-01T12:00:00Z"
NOON_US = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000


def rows_of(name: str, content: bytes) -> Iterator[Mapping[str, object] | tuple[str, str]]:
    """The values of each row, or the code of its refusal and its raw text."""
    rows = open_rows(name, content, SOURCE)
    for item in rows.items():
        try:
            yield rows.values(item)
        except RefusedError as refusal:
            yield refusal.code, rows.raw(item)


def events_of(name: str, content: bytes) -> Iterator[tuple[object, ...]]:
    """What is taken of each row, or the code of its refusal and its raw text."""
    rows = open_rows(name, content, SOURCE)
    for item in rows.items():
        try:
            yield reader_of_events(SOURCE)(rows.values(item), NOON_US).values
        except RefusedError as refusal:
            yield refusal.code, rows.raw(item)


# JSON lines


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "A.JSONL", "a.jsonl.gz", "a.json.gz"])
def test_json_lines_are_rows_and_empty_lines_are_none(name: str):
    content = b'\xef\xbb\xbf{"key": 1}\r\n\n \t\n{"key": 2}\n\n{"key": 3}'
    content = gzip.compress(content) if name.endswith(".gz") else content
    assert list(rows_of(name, content)) == [{"key": 1}, {"key": 2}, {"key": 3}]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('{"key": 1', "not_json"),
        ("not json", "not_json"),
        ('{"amount": NaN}', "not_json"),
        ('{"amount": -Infinity}', "not_json"),
        ('{"count": ' + "1" * 5000 + "}", "not_json"),
        ("[" * 5000 + "]" * 5000, "not_json"),
        ('{"key": 1}{"key": 2}', "not_json"),
        ("[1]", "not_an_object"),
        ("null", "not_an_object"),
        ('"\\ud800"', "not_an_object"),
    ],
)
def test_a_line_that_is_no_object_is_refused_with_its_text(line: str, code: str):
    content = f'{{"key": 1}}\n{line}\n{{"key": 2}}'.encode()
    assert list(rows_of("a.jsonl", content)) == [{"key": 1}, (code, line), {"key": 2}]


def test_a_line_separator_within_a_string_does_not_end_the_line():
    line = json.dumps({"key": "a\u2028b\x85c"}, ensure_ascii=False)
    assert list(rows_of("a.jsonl", line.encode())) == [{"key": "a\u2028b\x85c"}]


# CSV


def csv_of(*lines: str, header: str = "key,at,count,amount") -> bytes:
    return "\r\n".join([header, *lines]).encode()


def test_cells_are_converted_to_the_types_of_the_source():
    content = csv_of(f"a,{NOON},-7,1.5e3", "", f'"b,""c\n",{NOON},,', "   ")
    assert list(events_of("a.csv", content)) == [("a", -7, 1500.0), ('b,"c\n', None, None)]
    assert list(rows_of("a.csv.gz", gzip.compress(content))) == list(rows_of("a.csv", content))


@pytest.mark.parametrize("count", ["1.0", "1_000", " 1", "\uff11", "0x1", "--1", "nan", "1" * 5000])
def test_an_integer_is_digits_only(count: str):
    line = f"a,{NOON},{count},"
    assert list(events_of("a.csv", csv_of(line))) == [
        ("wrong_type", f"key,at,count,amount\n{line}")
    ]


@pytest.mark.parametrize("amount", ["nan", "inf", "Infinity", "1_0.5", "1,5", ".", "1e", "0x1p3"])
def test_a_number_is_written_plainly(amount: str):
    line = f'a,{NOON},1,"{amount}"'
    assert [code for code, _ in events_of("a.csv", csv_of(line))] == ["wrong_type"]


@pytest.mark.parametrize("line", [f"a,{NOON},1", f"a,{NOON},1,2,3", f'a"b,{NOON},1,"2"3'])
def test_a_record_that_does_not_fit_the_header_is_refused_alone(line: str):
    good = f"b,{NOON},1,2"
    found = list(events_of("a.csv", csv_of(line, good)))
    assert found == [("not_csv", f"key,at,count,amount\n{line}"), ("b", 1, 2.0)]


@pytest.mark.parametrize(
    "raw", ["", "key,at", f"key,at\na,{NOON}\nb,{NOON}", 'key,at\n"a', f"a,{NOON}"]
)
def test_a_raw_text_of_csv_is_one_row_under_its_header(raw: str):
    with pytest.raises(RefusedError) as caught:
        row_of_raw("a.csv", raw, SOURCE)
    assert caught.value.code == "not_csv"


def test_several_processes_parse_what_one_does(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    folder = Path(lake.landing(SOURCE.name))
    folder.mkdir(parents=True)
    for number in range(5):
        lines = [json.dumps({"key": f"{number}-{row}", "at": NOON}) for row in range(number)]
        (folder / f"{number}.jsonl").write_text("\n".join([*lines, "{"]))
    splits = landed_files(lake, SOURCE.name)
    root = landing_root(lake, SOURCE.name)
    read = partial(outcomes_of_file, lake, root, SOURCE, Batch(0, splits, NOON_US))
    alone = parse_here(SOURCE, read, splits)
    monkeypatch.setattr(parse_files, "BYTES_A_PROCESS", 1)
    monkeypatch.setattr(parse_files.os, "sched_getaffinity", lambda _: {0, 1})
    assert parse_here(SOURCE, read, splits).to_pylist() == alone.to_pylist()
    assert alone.num_rows == 0 + 1 + 2 + 3 + 4 + 5 + 5  # events, refused rows, files


# Columns of one name: no value is kept in another's place

COLUMNS = ["key", "at", "x", "x"]
ROW = ["a", NOON, "1", "2"]


def content(name: str, columns: Sequence[str] = COLUMNS, row: Sequence[str] = ROW) -> bytes:
    if name.endswith(".csv"):
        return f"{','.join(columns)}\n{','.join(row)}\n".encode()
    sink = io.BytesIO()
    pq.write_table(pa.table([pa.array([cell]) for cell in row], names=[*columns]), sink)
    return sink.getvalue()


def values(name: str, given: bytes, **changes: Any) -> dict[str, object]:
    rows = open_rows(name, given, replace(SOURCE, **changes))
    (item,) = rows.items()
    return dict(rows.values(item))


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_file_with_one_that_is_no_field_twice_is_refused_unless_it_is_passed_over(name: str):
    with pytest.raises(UnreadableFileError):
        values(name, content(name))
    for passed_over in ({"ignored": ("x",)}, {"rescue": False}):
        found = values(name, content(name), **passed_over)
        assert (found["key"], found["at"]) == ("a", NOON)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_field_that_is_there_twice_is_not_to_be_passed_over(name: str):
    with pytest.raises(UnreadableFileError):
        values(name, content(name, ["key", "at", "key", "x"]))


def test_columns_of_a_csv_without_names_are_called_by_their_number():
    """As where each line ends in delimiters."""
    found = values("a.csv", content("a.csv", ["key", "at", "", ""], ["a", NOON, "1", "2"]))
    assert found == {"key": "a", "at": NOON, "column 3": "1", "column 4": "2"}
