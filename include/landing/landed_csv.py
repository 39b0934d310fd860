"""CSV: under a header line, or of columns that the source declares; an empty cell is null."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from include.landing.landed_json import BLANKS, EOL
from include.landing.landed_row import check_columns
from include.landing.landed_values import Text, is_read_of_text
from include.landing.refusals import RefusedError, UnreadableFileError, shown
from include.settings import Csv, Source
from include.text_table import counted

DELIMITERS = ",;\t|"
# A refused row is kept with its header, which may be much longer than it.
MAX_HEADER = 256 * 1024  # characters
MAX_HEADER_COPIES = 64 * 1024**2  # characters of a file; its other refused rows have none

# The longest cell is bounded by the file's size, which is bounded itself.
csv.field_size_limit(2**31 - 1)


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
        self._header = ""
        self._copies_left = MAX_HEADER_COPIES
        self._columns = self._find_columns()
        # Lines may end in delimiters, so that some columns have no name, and mostly no value.
        named = [name for name in self._columns if name]
        keeps_nameless = source.rescue and "" not in source.ignored
        self._may_lose = keeps_nameless and len(self._columns) - len(named) > 1
        try:
            check_columns(named, source, "CSV header" if self._csv.header is None else "CSV")
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
        return header.cells

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
        if self._may_lose:
            self._refuse_nameless(item.cells)
        cells = zip(self._columns, item.cells, strict=True)
        texts = self._read_of_text
        return {column: Text(cell) if column in texts else cell for column, cell in cells if cell}

    def _refuse_nameless(self, cells: list[str]) -> None:
        """Of more than one only the last would be kept."""
        count = sum(1 for name, cell in zip(self._columns, cells, strict=True) if cell and not name)
        if count > 1:
            raise RefusedError("not_csv", f"{counted(count, 'cell')} of columns without a name")

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
