"""The rows of one landed file: JSON, CSV, Parquet or Avro; gzip of any.

A file is readable as a whole or not at all: opening it reads all of it first, so that a
file which breaks in the middle leaves none of its rows behind.
"""

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Protocol
from urllib.parse import unquote

from include.landing.landed_avro import AvroRows
from include.landing.landed_json import CsvRows, JsonRows, csv_row, json_rows
from include.landing.landed_parquet import ParquetRows
from include.landing.landed_values import RefusedError, Text, UnreadableFileError, is_read_of_text
from include.settings import Source

NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_values(name: str, source: Source) -> dict[str, object]:
    """What the folders of the file `name` say of the source's fields, by `Field.landed`.

    UnreadableFileError when a required one is missing, or there twice.
    """
    fields = [field for field in source.fields if field.from_folder]
    if not fields:
        return {}
    folders = PurePosixPath(name).parts[:-1]
    found: dict[str, object] = {}
    for field in fields:
        told = [
            part.removeprefix(field.landed) for part in folders if part.startswith(field.landed)
        ]
        if len(told) > 1 or (field.required and told in ([], [NULL])):
            raise UnreadableFileError(
                f"its folder says {field.landed} {len(told)} times, expected once: "
                f"{'/'.join(folders) or 'no folder'}"
            )
        text = unquote(told[0]) if told and told[0] != NULL else None
        is_read = text is not None and is_read_of_text(field.type)
        found[field.landed] = Text(text) if is_read else text
    return found


Item = Any  # one row as its format holds it: a line, some cells, or values
GZIP = b"\x1f\x8b"


class LandedRows(Protocol):
    """What all formats have in common."""

    def items(self) -> Iterator[Item]:
        """The rows; an empty line is no row."""

    def values(self, item: Item) -> Mapping[str, object]:
        """The row by field; RefusedError when it has no fields that could be read."""

    def raw(self, item: Item) -> str:
        """The row as text, from which `row_of_raw` reads the same values again."""


def open_rows(name: str, content: bytes, source: Source) -> LandedRows:
    """The rows of the file `name`, without its folder's fields; UnreadableFileError when it cannot be
    read as a whole."""
    opener = opener_of(name)
    if opener is None:
        raise UnreadableFileError(f"unknown ending: known are {', '.join(OPENERS)}, also with .gz")
    if content.startswith(GZIP) or name.lower().endswith(".gz"):
        content = _gunzip(content, source.max_file_bytes)
    return opener(content, source)


def _gunzip(content: bytes, max_bytes: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            found = file.read(max_bytes + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UnreadableFileError(f"not a whole gzip file: {error}") from None
    if len(found) > max_bytes:
        raise UnreadableFileError(f"unpacks to more than {max_bytes} bytes: split it")
    return found


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
    reads_csv = is_csv and not _is_object(raw)
    values = csv_row(raw, source) if reads_csv else JsonRows("", source).values(raw)
    return {**values, **folder}


def has_types(name: str) -> bool:
    """Whether values of the file `name` have types that the raw text of its rows does not tell."""
    return opener_of(name) in (ParquetRows, AvroRows)


def _is_object(raw: str) -> bool:
    try:
        return isinstance(json.loads(raw), dict)
    except (ValueError, RecursionError):
        return False


def _json(content: bytes, source: Source) -> LandedRows:
    return json_rows(_text_of(content, "utf-8"), source)


def _csv(content: bytes, source: Source) -> LandedRows:
    return CsvRows(_text_of(content, source.csv.encoding), source)


def _text_of(content: bytes, encoding: str) -> str:
    """The text, without a byte order mark; UnreadableFileError when it is not in the encoding."""
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        said = f"not {encoding.upper()}: {error.reason} at byte {error.start}"
        raise UnreadableFileError(said) from None
    if "\0" in text:
        raise UnreadableFileError("binary: it has NUL bytes")
    return text.removeprefix("\ufeff")


OPENERS: dict[str, Callable[[bytes, Source], LandedRows]] = {
    ".jsonl": _json,
    ".ndjson": _json,
    ".json": _json,
    ".csv": _csv,
    ".parquet": ParquetRows,
    ".avro": AvroRows,
}
