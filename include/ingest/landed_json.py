"""JSON and CSV: objects a line, in arrays or over several lines; cells under a header."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import InvalidOperation
from typing import NamedTuple

from include.ingest.landed_values import (
    EXACT_JSON,
    JSON,
    RefusedError,
    Text,
    UnreadableFileError,
    columns_to_read,
    is_read_of_text,
    shown,
)
from include.ingest.rescue import Rescue
from include.settings import Csv, Source
from include.text_table import counted

EOL = "\r\n"
BLANKS = f" \t{EOL}"
BLANK = re.compile(rf"[{BLANKS}]*")
DEEP = "nested too deeply"


class JsonRows:
    """One JSON object a line. Of a field given twice, the last counts."""

    def __init__(self, text: str, source: Source) -> None:
        self._text = text
        self._json = EXACT_JSON if any("decimal(" in f.type for f in source.fields) else JSON
        rescue = Rescue(source)
        self._has_all, self._unknown = rescue.has_all, rescue.unknown

    def items(self) -> Iterator[str]:
        # Not splitlines(): it also breaks at characters that JSON allows within a string.
        for line in io.StringIO(self._text, newline="\n"):
            if line.strip(BLANKS):
                yield line.rstrip(EOL)

    def values(self, item: str) -> Mapping[str, object]:
        try:
            value = self._json.decode(item)
            # What is rescued may be declared a decimal one day.
            if isinstance(value, dict) and not self._has_all(value) and self._unknown(value):
                value = EXACT_JSON.decode(item)
        except RecursionError:
            raise RefusedError("not_json", DEEP) from None
        except (ValueError, InvalidOperation) as error:
            raise RefusedError("not_json", str(error)) from None
        if not isinstance(value, dict):
            raise RefusedError("not_an_object", f"found {shown(value)}")
        return value

    def raw(self, item: str) -> str:
        return item


class JsonDocument(JsonRows):
    """Values that lines do not part: those of an array, or one after the other."""

    def __init__(self, text: str, source: Source) -> None:
        super().__init__(text, source)
        self._items: list[str] = []
        at = _skip(text, 0)
        is_array = text.startswith("[", at)
        at = _skip(text, at + is_array)
        is_more = not text.startswith("]", at)
        try:
            while is_more:
                end = _end_of(text, at)
                self._items.append(text[at:end])
                at = _skip(text, end)
                is_more = text.startswith(",", at) if is_array else at < len(text)
                at = _skip(text, at + (is_array and is_more))
            if is_array and not text.startswith("]", at):
                raise ValueError("expected , or ]")
            if is_array and _skip(text, at + 1) < len(text):
                raise ValueError("text behind the array")
        except ValueError as error:
            line = text.count("\n", 0, at) + 1
            raise UnreadableFileError(f"not JSON from line {line} on: {error}") from None

    def items(self) -> Iterator[str]:
        return iter(self._items)


def json_rows(text: str, source: Source) -> JsonRows:
    """The rows as the content has them; UnreadableFileError where that is not whole."""
    start = _skip(text, 0)
    is_document = text.startswith("[", start)
    if text.startswith("{", start):  # a broken line is refused alone
        with suppress(ValueError):
            is_document = "\n" in text[start : _end_of(text, start)]
    return JsonDocument(text, source) if is_document else JsonRows(text, source)


def _skip(text: str, at: int) -> int:
    found = BLANK.match(text, at)
    return at if found is None else found.end()


def _end_of(text: str, at: int) -> int:
    """Where the value ends that begins there; ValueError of none."""
    try:
        return JSON.raw_decode(text, at)[1]
    except RecursionError:
        raise ValueError(DEEP) from None


# A refused row is kept with its header, which may be much longer than it.
MAX_HEADER_COPIES = 64 * 1024**2  # characters of a file; its other refused rows have none
# The longest cell is bounded by the file's size, which is bounded itself.
csv.field_size_limit(2**31 - 1)


# Of numbers with a decimal comma; a point in one of them is refused.
POINT = str.maketrans(",.", ".,")


def _has_point(kind: str) -> bool:
    return kind in ("float", "double") or kind.startswith("decimal")


class CsvRow(NamedTuple):
    """A record, or what went wrong, and the text it was read from."""

    cells: list[str] | csv.Error
    text: str


class CsvRows:
    """Records of CSV under their header, that of the file or the declared one."""

    def __init__(self, text: str, source: Source) -> None:
        self._text = text
        self._csv = source.csv
        self._read_of_text = {f.landed for f in source.fields if is_read_of_text(f.type)}
        self._with_comma = {f.landed for f in source.fields if _has_point(f.type)}
        if self._csv.decimal == ".":
            self._with_comma.clear()
        self._header = ""
        self._copies_left = MAX_HEADER_COPIES
        self._columns = self._find_columns()
        columns_to_read(self._columns, source, "CSV")
        for _ in _csv_records(text, source.csv):  # finds a quote that is never closed
            pass

    def _find_columns(self) -> list[str]:
        if self._csv.header is not None:
            return list(self._csv.header)
        header = next(_csv_records(self._text, self._csv), CsvRow([], ""))
        if isinstance(header.cells, csv.Error):
            raise UnreadableFileError(f"the header is no CSV: {header.cells}")
        self._header = header.text.rstrip(EOL)
        # Lines may end in delimiters, so that some columns have no name, and mostly no value.
        return [name or f"column {number}" for number, name in enumerate(header.cells, start=1)]

    def items(self) -> Iterator[CsvRow]:
        records = _csv_records(self._text, self._csv)
        if self._csv.header is None:
            next(records)
        yield from records

    def values(self, item: CsvRow) -> Mapping[str, object]:
        if isinstance(item.cells, csv.Error):
            raise RefusedError("not_csv", str(item.cells))
        if len(item.cells) != len(self._columns):
            said = f"{counted(len(item.cells), 'cell')}, the header has {len(self._columns)}"
            raise RefusedError("not_csv", said)
        cells = item.cells
        if self._with_comma:
            cells = [
                cell.translate(POINT) if column in self._with_comma else cell
                for column, cell in zip(self._columns, cells, strict=True)
            ]
        texts, named = self._read_of_text, zip(self._columns, cells, strict=True)
        return {column: Text(cell) if column in texts else cell for column, cell in named if cell}

    def raw(self, item: CsvRow) -> str:
        text = item.text.rstrip(EOL)
        if self._csv.header is not None:
            return text
        self._copies_left -= len(self._header)
        return text if self._copies_left < 0 else f"{self._header}\n{text}"


def csv_row(raw: str, source: Source) -> Mapping[str, object]:
    """The values of a raw text: one row, under its header where files have one."""
    try:
        rows = CsvRows(raw, source)
        items = list(rows.items())
    except UnreadableFileError as error:
        raise RefusedError("not_csv", str(error)) from None
    if len(items) != 1:
        said = f"expected one row, under the header of the file, found {counted(len(items), 'row')}"
        raise RefusedError("not_csv", said)
    return rows.values(items[0])


def _csv_records(text: str, declared: Csv) -> Iterator[CsvRow]:
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in io.StringIO(text, newline=""):
            taken.append(line)
            yield line

    quoting = csv.QUOTE_NONE if declared.quote is None else csv.QUOTE_MINIMAL
    style = {"delimiter": declared.delimiter, "quotechar": declared.quote, "quoting": quoting}
    reader = csv.reader(lines(), strict=True, **style)  # type: ignore[arg-type]
    while True:
        taken.clear()
        try:
            cells: list[str] | csv.Error = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                raise UnreadableFileError(f"a quote in {shown(taken[0])} never ends") from None
            cells = error
        if (
            isinstance(cells, csv.Error)
            or any(cell.strip(BLANKS) for cell in cells)
            or len(cells) > 1
        ):
            yield CsvRow(cells, "".join(taken))
