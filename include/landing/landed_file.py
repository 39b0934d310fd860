"""The rows of one landed file: JSON lines, CSV with a header, or Parquet; gzip of the text.

A file is readable as a whole or not at all: opening it reads all of it first, so that a
file which breaks in the middle leaves none of its rows behind.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn, Protocol

from include.landing.landed_parquet import ParquetRows
from include.landing.landed_row import check_columns
from include.landing.landed_values import Text, is_read_of_text
from include.landing.refusals import RefusedError, UnreadableFileError, shown
from include.settings import Source

EOL = "\r\n"
BLANKS = f" \t{EOL}"

# The longest cell is bounded by the file's size, which is bounded itself.
csv.field_size_limit(2**31 - 1)

Item = Any  # one row as its format holds it: a line, some cells, or values


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
    stem = name.lower()
    if stem.endswith(".parquet"):
        return ParquetRows(content, source)
    if stem.endswith(".gz"):
        content = _gunzip(content, source.max_file_bytes)
        stem = stem.removesuffix(".gz")
    if stem.endswith((".jsonl", ".json")):
        return JsonRows(_text(content), source)
    if stem.endswith(".csv"):
        return CsvRows(_text(content), source)
    raise UnreadableFileError("unknown ending: known are .jsonl .json .csv (also .gz) .parquet")


def row_of_raw(name: str, raw: str, source: Source) -> Mapping[str, object]:
    """The values of one row of the file `name` from its raw text, or a correction of it.

    A JSON object is taken for any file; a row of a CSV file may also be its header and it.
    """
    is_csv = name.lower().removesuffix(".gz").endswith(".csv")
    if not is_csv or raw.lstrip().startswith("{"):
        return JsonRows("", source).values(raw)
    try:
        rows = CsvRows(raw, source)
        items = list(rows.items())
    except UnreadableFileError as error:
        raise RefusedError("not_csv", str(error)) from None
    if len(items) != 1:
        raise RefusedError("not_csv", f"expected the header and one row, found {len(items)} rows")
    return rows.values(items[0])


def _gunzip(content: bytes, max_bytes: int) -> bytes:
    if not content:
        raise UnreadableFileError("empty, not even a gzip header")
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = file.read(max_bytes + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UnreadableFileError(f"not a whole gzip file: {error}") from None
    if len(unpacked) > max_bytes:
        raise UnreadableFileError(f"unpacks to more than {max_bytes} bytes: split it")
    return unpacked


def _text(content: bytes) -> str:
    if b"\0" in content:
        raise UnreadableFileError("binary: it has NUL bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"not UTF-8: {error.reason} at byte {error.start}") from None


class JsonRows:
    """One JSON object a line. Of a field given twice, the last counts."""

    def __init__(self, text: str, source: Source) -> None:
        self._text = text
        self._json = EXACT_JSON if any("decimal(" in f.type for f in source.fields) else JSON

    def items(self) -> Iterator[str]:
        # Not splitlines(): it also breaks at characters that JSON allows within a string.
        for line in io.StringIO(self._text, newline="\n"):
            if line.strip(BLANKS):
                yield line.rstrip(EOL)

    def values(self, item: str) -> Mapping[str, object]:
        try:
            value = self._json.decode(item)
        except RecursionError:
            raise RefusedError("not_json", "nested too deeply") from None
        except ValueError as error:
            raise RefusedError("not_json", str(error)) from None
        if not isinstance(value, dict):
            raise RefusedError("not_an_object", f"found {shown(value)}")
        return value

    def raw(self, item: str) -> str:
        return item


def _refuse_constant(name: str) -> NoReturn:
    raise RefusedError("not_json", f"{name} is not JSON")


# Not json.loads, which would make one a row.
JSON = json.JSONDecoder(parse_constant=_refuse_constant)
# A decimal is not to go through a float; a double is the same either way.
EXACT_JSON = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=Decimal)


class CsvRow(NamedTuple):
    """A record, and the text it was read from; `cells` is what went wrong if it has none."""

    cells: list[str] | csv.Error
    text: str


class CsvRows:
    """CSV with a header; an empty cell is null."""

    def __init__(self, text: str, source: Source) -> None:
        self._text = text
        self._read_of_text = {f.landed for f in source.fields if is_read_of_text(f.type)}
        self._header = next(_csv_records(text), CsvRow([], ""))
        if isinstance(self._header.cells, csv.Error):
            raise UnreadableFileError(f"the header is no CSV: {self._header.cells}")
        self._columns = self._header.cells
        check_columns(self._columns, source, "CSV header")
        for _ in _csv_records(text):  # finds a quote that is never closed
            pass

    def items(self) -> Iterator[CsvRow]:
        records = _csv_records(self._text)
        next(records)
        yield from records

    def values(self, item: CsvRow) -> Mapping[str, object]:
        if isinstance(item.cells, csv.Error):
            raise RefusedError("not_csv", str(item.cells))
        if len(item.cells) != len(self._columns):
            raise RefusedError(
                "not_csv", f"{len(item.cells)} cells, the header has {len(self._columns)}"
            )
        cells = zip(self._columns, item.cells, strict=True)
        texts = self._read_of_text
        return {column: Text(cell) if column in texts else cell for column, cell in cells if cell}

    def raw(self, item: CsvRow) -> str:
        return f"{self._header.text.rstrip(EOL)}\n{item.text.rstrip(EOL)}"


def _csv_records(text: str) -> Iterator[CsvRow]:
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in io.StringIO(text, newline=""):
            taken.append(line)
            yield line

    source = lines()
    reader = csv.reader(source, strict=True)
    while True:
        taken.clear()
        try:
            cells: list[str] | csv.Error = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                raise UnreadableFileError(
                    f"a quote opened in {shown(taken[0])} never ends"
                ) from None
            cells = error
        if (
            isinstance(cells, csv.Error)
            or any(cell.strip(BLANKS) for cell in cells)
            or len(cells) > 1
        ):
            yield CsvRow(cells, "".join(taken))
