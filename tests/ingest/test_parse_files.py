"""From the bytes of a file to its rows: each format, and each way to be unreadable."""

import gzip
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import EPOCH, MICROSECOND
from include.ingest import parse_files
from include.ingest.formats import open_rows, row_of_raw
from include.ingest.landed_files import landed_files, landing_root, outcomes_of_file
from include.ingest.landed_values import (
    MAX_US,
    MIN_US,
    Event,
    Instant,
    RefusedError,
    UnreadableFileError,
    reader_of_events,
)
from include.ingest.parse_files import parse_here
from include.ingest.splits import Batch
from include.lake.paths import Lake
from include.settings import Field, Source

SOURCE = Source(
    name="readings",
    time_field="at",
    comment="Readings",
    max_file_bytes=10_000,
    max_future=timedelta(hours=1),
    fields=(
        Field(name="key", type="string", comment="Key"),
        Field(name="count", type="bigint", comment="Count", required=False),
        Field(name="amount", type="double", comment="Amount", required=False),
    ),
)
NOON = "2026-01-01T12:00:00Z"
NOON_US = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000


def judged(name: str, content: bytes, taken: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield what is taken of each row, or the code of its refusal and its raw text."""
    rows = open_rows(name, content, SOURCE)
    for item in rows.items():
        try:
            yield taken(rows.values(item))
        except RefusedError as refusal:
            yield refusal.code, rows.raw(item)


def rows_of(name: str, content: bytes) -> list[Any]:
    return [*judged(name, content, dict)]


def events_of(name: str, content: bytes) -> list[Any]:
    return [*judged(name, content, lambda row: reader_of_events(SOURCE)(row, NOON_US).values)]


# JSON lines


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "A.JSONL", "a.jsonl.gz", "a.json.gz"])
def test_json_lines_are_rows_and_empty_lines_are_none(name: str):
    content = b'\xef\xbb\xbf{"key": 1}\r\n\n \t\n{"key": 2}\n\n{"key": 3}'
    content = gzip.compress(content) if name.endswith(".gz") else content
    assert rows_of(name, content) == [{"key": 1}, {"key": 2}, {"key": 3}]


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
    assert rows_of("a.jsonl", content) == [{"key": 1}, (code, line), {"key": 2}]


def test_a_line_separator_within_a_string_does_not_end_the_line():
    line = json.dumps({"key": "a\u2028b\x85c"}, ensure_ascii=False)
    assert rows_of("a.jsonl", line.encode()) == [{"key": "a\u2028b\x85c"}]


# CSV


def csv_of(*lines: str, header: str = "key,at,count,amount") -> bytes:
    return "\r\n".join([header, *lines]).encode()


def test_cells_are_converted_to_the_types_of_the_source():
    content = csv_of(f"a,{NOON},-7,1.5e3", "", f'"b,""c\n",{NOON},,', "   ")
    assert events_of("a.csv", content) == [("a", -7, 1500.0), ('b,"c\n', None, None)]
    assert rows_of("a.csv.gz", gzip.compress(content)) == rows_of("a.csv", content)


INTEGERS = ["1.0", "1_000", " 1", "\uff11", "0x1", "--1", "nan", "1" * 5000]
DOUBLES = ["nan", "inf", "Infinity", "1_0.5", '"1,5"', ".", "1e", "0x1p3"]


@pytest.mark.parametrize("cells", [*(f"{n}," for n in INTEGERS), *(f"1,{n}" for n in DOUBLES)])
def test_a_number_is_written_plainly(cells: str):
    line = f"a,{NOON},{cells}"
    refused = ("wrong_type", f"key,at,count,amount\n{line}")
    assert events_of("a.csv", csv_of(line)) == [refused]


@pytest.mark.parametrize("line", [f"a,{NOON},1", f"a,{NOON},1,2,3", f'a"b,{NOON},1,"2"3'])
def test_a_record_that_does_not_fit_the_header_is_refused_alone(line: str):
    good = f"b,{NOON},1,2"
    found = events_of("a.csv", csv_of(line, good))
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
def test_a_file_with_a_column_twice_is_refused_unless_it_is_no_field_and_passed_over(name: str):
    for columns in (COLUMNS, ["key", "at", "key", "x"]):
        with pytest.raises(UnreadableFileError):
            values(name, content(name, columns))
    for passed_over in ({"ignored": ("x",)}, {"rescue": False}):
        found = values(name, content(name), **passed_over)
        assert (found["key"], found["at"]) == ("a", NOON)


def test_columns_of_a_csv_without_names_are_called_by_their_number():
    """Such columns come of lines that end in delimiters."""
    found = values("a.csv", content("a.csv", ["key", "at", "", ""], ["a", NOON, "1", "2"]))
    assert found == {"key": "a", "at": NOON, "column 3": "1", "column 4": "2"}


# Rows

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def us(instant: datetime) -> int:
    return (instant - EPOCH) // MICROSECOND


def event_of(**changes: object) -> Event:
    row = {"key": "a", "count": 1, "amount": 2.5, "at": "2025-12-31T23:00:00Z", **changes}
    return reader_of_events(SOURCE)(row, us(NOW))


def refusal_of(**changes: object) -> tuple[str, str]:
    with pytest.raises(RefusedError) as caught:
        event_of(**changes)
    return caught.value.code, caught.value.reason


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01 00:00Z", 0),
        ("1970-01-01T00:00:00.123456789Z", 123456),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("1970-01-01T00:00:00,5Z", 500000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:30:00+0130", 0),
        ("1969-12-31T19:00:00-05", 0),
        ("0001-01-01T00:00:00Z", MIN_US),
    ],
)
def test_times_are_read_to_the_microsecond(text: str, micros: int):
    assert event_of(at=text).event_time_us == micros


@pytest.mark.parametrize(
    "value",
    [
        "2025-12-31T23:00:00", "2025-12-31", "2025-12-31T23:00:00 Z", "2025-12-31T23:00:60Z",
        "2025-02-29T00:00:00Z", "2025-W01-1T00:00:00Z", "20251231T230000Z", "2025-12-31T23:00:00+24:00",
        "2025-12-31T23:00:00+00:00:30", "\uff12025-12-31T23:00:00Z", "2025-12-31T23:00:00Z\n",
        "0001-01-01T00:00:00+01:00", "yesterday", "", 1767222000, True,
    ],
)  # fmt: skip
def test_other_times_are_refused(value: object):
    assert refusal_of(at=value)[0] == "unreadable_time"


@given(
    st.datetimes(max_value=NOW.replace(tzinfo=None)),
    st.integers(min_value=-14 * 60, max_value=14 * 60),
)
def test_any_time_keeps_its_instant_in_any_zone(local: datetime, offset_minutes: int):
    instant = local.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    micros = us(instant)
    if MIN_US <= micros <= us(NOW + HOUR):
        assert event_of(at=instant.isoformat()).event_time_us == micros
    else:
        assert refusal_of(at=instant.isoformat())[0] in ("unreadable_time", "future_time")


def test_a_time_at_the_limit_of_the_future_is_in_and_past_it_is_out():
    limit = NOW + HOUR
    assert event_of(at=limit.isoformat()).event_time_us == us(limit)
    assert refusal_of(at=(limit + MICROSECOND).isoformat())[0] == "future_time"
    assert refusal_of(at="9999-12-31T23:59:59.999999Z")[0] == "future_time"


def test_an_instant_beyond_the_year_9999_or_before_1_is_unreadable():
    assert refusal_of(at=Instant(MAX_US + 1))[0] == "unreadable_time"
    assert refusal_of(at=Instant(MIN_US - 1))[0] == "unreadable_time"
    assert event_of(at=Instant(MIN_US)).event_time_us == MIN_US


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def event_or_refusal(row: dict[str, object]) -> Event | RefusedError:
    try:
        return reader_of_events(SOURCE)(row, us(NOW))
    except RefusedError as refusal:
        return refusal


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(["key", "count", "amount", "at"], JSON_VALUES))
)
def test_any_row_is_an_event_of_the_right_types_or_refused_with_a_reason(row: dict[str, object]):
    event = event_or_refusal(row)
    if isinstance(event, RefusedError):
        assert event.code
        assert event.reason.isascii()
        assert "\n" not in event.reason
        return
    for value, kind in zip(event.values, (str, int, float), strict=True):
        assert type(value) is kind or (value is None and kind is not str)
    json.dumps(event.values, allow_nan=False).encode()
