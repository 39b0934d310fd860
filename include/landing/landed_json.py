"""JSON and CSV: objects a line, arrays of objects or objects over several lines; cells under a header."""

import csv
import io
import json
import re
from array import array
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import NamedTuple, NoReturn, TypeAlias

from include.landing.landed_values import (
    RefusedError,
    Text,
    UnreadableFileError,
    check_columns,
    is_read_of_text,
    shown,
)
from include.landing.rescue import Rescue
from include.settings import Csv, Source
from include.text_table import counted

EOL = "\r\n"
BLANKS = f" \t{EOL}"
BLANK = re.compile(rf"[{BLANKS}]*")
Spans: TypeAlias = (
    "array[int]"  # where each row begins and ends, in turns: a file may have millions
)
DEEP = "nested too deeply"
SHOWN_LEFT = 20


class JsonRows:
    """One JSON object a line. Of a field given twice, the last counts."""

    def __init__(self, text: str, source: Source) -> None:
        self._text = text
        self._json = EXACT_JSON if any("decimal(" in f.type for f in source.fields) else JSON
        self._is_known = Rescue(source).is_known

    def items(self) -> Iterator[str]:
        # Not splitlines(): it also breaks at characters that JSON allows within a string.
        for line in io.StringIO(self._text, newline="\n"):
            if line.strip(BLANKS):
                yield line.rstrip(EOL)

    def values(self, item: str) -> Mapping[str, object]:
        try:
            value = self._json.decode(item)
            # What is rescued may be declared a decimal one day.
            if isinstance(value, dict) and not self._is_known(value):
                value = EXACT_JSON.decode(item)
        except RecursionError:
            raise RefusedError("not_json", DEEP) from None
        except (ValueError, InvalidOperation) as error:
            raise RefusedError("not_json", _what_is_wrong(error)) from None
        if not isinstance(value, dict):
            raise RefusedError("not_an_object", f"found {shown(value)}{_hint(value)}")
        return value

    def raw(self, item: str) -> str:
        return item


def _what_is_wrong(error: Exception) -> str:
    """And where: lines and columns are of the row."""
    if not isinstance(error, json.JSONDecodeError):
        return "a number has more digits than can be read"
    left = error.doc[error.pos : error.pos + SHOWN_LEFT]
    return f"{error}: {shown(left) if left else 'its end'}"


def _hint(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return ": it is a JSON array inside lines. Write one object a line, or one array a file"
    return ""


class JsonDocument(JsonRows):
    """Values that lines do not part: the items of an array, or one object after the other."""

    def __init__(self, text: str, source: Source, spans: Spans) -> None:
        super().__init__(text, source)
        self._spans = spans

    def items(self) -> Iterator[str]:
        bounds = iter(self._spans)
        return (self._text[start:end] for start, end in zip(bounds, bounds, strict=True))


def json_rows(text: str, source: Source) -> JsonRows:
    """The rows as the content has them; UnreadableFileError when an array or object never ends."""
    try:
        spans = _spans(text)
    except RecursionError:
        raise UnreadableFileError(f"a JSON value {DEEP}") from None
    return JsonRows(text, source) if spans is None else JsonDocument(text, source, spans)


def _spans(text: str) -> "Spans | None":
    """Where the rows are in one that is no JSON lines; None of one that is."""
    start = _skip(text, 0)
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    is_array = text.startswith("[", start)
    if not is_array and not text.startswith("{", start):
        return None
    if _is_value(text[start:line_end].rstrip(BLANKS)):
        # A line that is whole begins lines, but for an array that is all there is.
        is_alone = _skip(text, line_end) == len(text)
        return _items(text, start) if is_array and is_alone else None
    first = _end_of(text, _skip(text, start + 1) if is_array else start)
    if is_array:
        return _items(text, start) if first or text.startswith("[]", start) else None
    return None if first is None or first <= line_end else _objects(text, start)


def _is_value(line: str) -> bool:
    try:
        return _end_of(line, 0) == len(line)
    except RecursionError:
        return True  # its row is refused, and no other


def _items(text: str, start: int) -> Spans:
    """Those of the array that begins at `start`."""
    spans: Spans = array("q")
    at = _skip(text, start + 1)
    is_first = True
    while not (is_first and text.startswith("]", at)):
        end = _must_end(text, at)
        spans.extend((at, end))
        at = _skip(text, end)
        is_first = False
        if text.startswith("]", at):
            break
        if not text.startswith(",", at):
            raise _broken(text, at, "a JSON array: expected , or ]")
        at = _skip(text, at + 1)
    if (rest := _skip(text, at + 1)) < len(text):
        raise _broken(text, rest, "a JSON array: text behind its end")
    return spans


def _objects(text: str, at: int) -> Spans:
    spans: Spans = array("q")
    while at < len(text):
        end = _must_end(text, at)
        spans.extend((at, end))
        at = _skip(text, end)
    return spans


def _must_end(text: str, at: int) -> int:
    end = _end_of(text, at)
    if end is None:
        raise _broken(text, at, "JSON over several lines: a value that is broken, or never ends")
    return end


def _broken(text: str, at: int, told: str) -> UnreadableFileError:
    line = text.count("\n", 0, at) + 1
    return UnreadableFileError(f"not {told}, at line {line}: {shown(text[at : at + 40])}")


def _skip(text: str, at: int) -> int:
    found = BLANK.match(text, at)
    return at if found is None else found.end()


def _end_of(text: str, at: int) -> int | None:
    """Where the value ends that begins there; None of none."""
    try:
        return ENDS.raw_decode(text, at)[1]
    except ValueError:
        return None


def _refuse_constant(name: str) -> NoReturn:
    raise RefusedError("not_json", f"{name} is not JSON")


# Not json.loads, which would make one a row.
JSON = json.JSONDecoder(parse_constant=_refuse_constant)
# A decimal is not to go through a float; a double is the same either way.
EXACT_JSON = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=Decimal)
# Only to see where values end: whatever is in them is for their own row to be refused for.
ENDS = json.JSONDecoder(parse_constant=str, parse_float=str, parse_int=str)

DELIMITERS = ",;\t|"
# A refused row is kept with its header, which may be much longer than it.
MAX_HEADER = 256 * 1024  # characters
MAX_HEADER_COPIES = 64 * 1024**2  # characters of a file; its other refused rows have none
# The longest cell is bounded by the file's size, which is bounded itself.
csv.field_size_limit(2**31 - 1)


# Of numbers with a decimal comma; a point in one of them is refused.
POINT = str.maketrans(",.", ".,")


def _has_point(kind: str) -> bool:
    return kind in ("float", "double") or kind.startswith("decimal")


class CsvRow(NamedTuple):
    """A record, and the text it was read from; `cells` is what went wrong if it has none."""

    cells: list[str] | csv.Error
    text: str


class CsvRows:
    """CSV: see `LandedRows` for what its methods promise."""

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
        try:
            check_columns(
                self._columns, source, "CSV header" if self._csv.header is None else "CSV"
            )
        except UnreadableFileError as error:
            raise UnreadableFileError(f"{error}{self._likely_delimiter()}") from None
        for _ in _csv_records(text, source.csv):  # finds a quote that is never closed
            pass

    def _find_columns(self) -> list[str]:
        if self._csv.header is not None:
            return list(self._csv.header)
        header = next(_csv_records(self._text, self._csv), CsvRow([], ""))
        if isinstance(header.cells, csv.Error):
            raise UnreadableFileError(f"the header is no CSV: {header.cells}")
        if len(header.text) > MAX_HEADER:
            raise UnreadableFileError(
                f"the header has {len(header.text)} characters, more than {MAX_HEADER}: is it one?"
            )
        self._header = header.text.rstrip(EOL)
        # Lines may end in delimiters, so that some columns have no name, and mostly no value.
        return [name or f"column {number}" for number, name in enumerate(header.cells, start=1)]

    def _likely_delimiter(self) -> str:
        counts = {
            mark: self._header.count(mark) for mark in DELIMITERS if mark not in self._csv.delimiter
        }
        likely = max(counts, key=lambda mark: counts[mark])
        is_likely = counts[likely] >= max(len(self._columns), 1)
        return f"; is the delimiter {likely!r}?" if is_likely else ""

    def items(self) -> Iterator[CsvRow]:
        records = _csv_records(self._text, self._csv)
        if self._csv.header is None:
            next(records)
        yield from records

    def values(self, item: CsvRow) -> Mapping[str, object]:
        if isinstance(item.cells, csv.Error):
            raise RefusedError("not_csv", str(item.cells))
        if len(item.cells) != len(self._columns):
            told = "the header" if self._header else "the declared header"
            raise RefusedError(
                "not_csv", f"{counted(len(item.cells), 'cell')}, {told} has {len(self._columns)}"
            )
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
        expected = "one row" if source.csv.header else "the header and one row"
        raise RefusedError("not_csv", f"expected {expected}, found {counted(len(items), 'row')}")
    return rows.values(items[0])


def _csv_records(text: str, declared: Csv) -> Iterator[CsvRow]:
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in io.StringIO(text, newline=""):
            taken.append(line)
            yield line

    reader = _reader(lines(), declared)
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


def _reader(lines: Iterator[str], declared: Csv) -> Iterator[list[str]]:
    if declared.quote is None:
        return csv.reader(lines, strict=True, delimiter=declared.delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(lines, strict=True, delimiter=declared.delimiter, quotechar=declared.quote)
