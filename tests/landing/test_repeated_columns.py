"""Columns of a file that have one name: no value is kept in another's place."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.landing.landed_file import open_rows
from include.landing.landed_values import UnreadableFileError
from tests.landing.test_parse_files import NOON, SOURCE

COLUMNS = ["key", "at", "x", "x"]
ROW = ["a", NOON, "1", "2"]


def content(name: str, columns: Sequence[str] = COLUMNS, row: Sequence[str] = ROW) -> bytes:
    if name.endswith(".csv"):
        return f"{','.join(columns)}\n{','.join(row)}\n".encode()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table([pa.array([cell]) for cell in row], names=[*columns]), sink)
    return bytes(sink.getvalue())


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
