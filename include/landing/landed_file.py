"""The rows of one landed file: JSON, CSV, Parquet or Avro; gzip of any.

A file is readable as a whole or not at all: opening it reads all of it first, so that a
file which breaks in the middle leaves none of its rows behind.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from include.landing.landed_avro import AvroRows
from include.landing.landed_content import AVRO, PARQUET, text_of, unpacked, what_it_is
from include.landing.landed_csv import CsvRows, csv_row
from include.landing.landed_folder import InFolder, folder_values
from include.landing.landed_json import JsonRows, RawRows, json_rows
from include.landing.landed_parquet import ParquetRows
from include.landing.refusals import RefusedError, UnreadableFileError
from include.settings import Source

Item = Any  # one row as its format holds it: a line, some cells, or values
ENDINGS = ".jsonl .ndjson .json .csv .parquet .avro"
OBJECT = re.compile(r'\s*\{\s*["}]')  # how JSON's begin; a CSV's header may begin with a brace, too


class LandedRows(Protocol):
    """What all formats have in common."""

    def items(self) -> Iterator[Item]:
        """The rows; an empty line is no row."""

    def values(self, item: Item) -> Mapping[str, object]:
        """The row by field; RefusedError when it has no fields that could be read."""

    def raw(self, item: Item) -> str:
        """The row as text, from which `row_of_raw` reads the same values again."""


def open_rows(name: str, content: bytes, source: Source) -> LandedRows:
    """The rows of the file `name`; UnreadableFileError when it cannot be read as a whole."""
    folder = folder_values(name, source)
    content = unpacked(name, content, source.max_file_bytes)
    opener = opener_of(name)
    if opener is None:
        found = what_it_is(content)
        raise UnreadableFileError(
            f"unknown ending: known are {ENDINGS}, also with .gz; it is {found}"
        )
    rows = opener(content, source)
    return InFolder(rows, folder) if folder else rows


def opener_of(name: str) -> Callable[[bytes, Source], LandedRows] | None:
    """What reads files of its ending; None where that is not known."""
    stem = name.lower().removesuffix(".gz")
    return next((of for ending, of in OPENERS.items() if stem.endswith(ending)), None)


def row_of_raw(name: str, raw: str, source: Source) -> Mapping[str, object]:
    """The values of one row of the file `name` from its raw text, or a correction of it.

    A JSON object is taken for any file; a row of a CSV file may also be its header and it.
    """
    try:
        folder = folder_values(name, source)
    except UnreadableFileError as error:
        raise RefusedError("missing_field", str(error)) from None
    is_csv = name.lower().removesuffix(".gz").endswith(".csv")
    values = (
        csv_row(raw, source) if is_csv and _is_csv(raw, source) else _json_values(name, raw, source)
    )
    return {**values, **folder}


def _is_csv(raw: str, source: Source) -> bool:
    """Without a header line before it, a row whose first cell is JSON begins as a correction does."""
    return not OBJECT.match(raw) or bool(source.csv.header and not _is_json(raw))


def _is_json(raw: str) -> bool:
    try:
        json.loads(raw)
    except ValueError:
        return False
    except RecursionError:
        return True  # as far as that
    return True


def _json_values(name: str, raw: str, source: Source) -> Mapping[str, object]:
    rows = JsonRows if opener_of(name) is _json else RawRows  # (the former has but what JSON has)
    return rows("", source).values(raw)


def _json(content: bytes, source: Source) -> LandedRows:
    return json_rows(text_of(content), source)


def _csv(content: bytes, source: Source) -> LandedRows:
    if (found := what_it_is(content)) in (PARQUET, AVRO):
        raise UnreadableFileError(f"it is {found}, though it is named .csv")
    return CsvRows(text_of(content, source.csv.encoding), source)


OPENERS: dict[str, Callable[[bytes, Source], LandedRows]] = {
    ".jsonl": _json,
    ".ndjson": _json,
    ".json": _json,
    ".csv": _csv,
    ".parquet": ParquetRows,
    ".avro": AvroRows,
}
