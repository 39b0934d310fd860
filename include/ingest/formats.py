"""The rows of one landed file, all of them or none: JSON, CSV, Parquet, Avro; each also gzipped."""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import InvalidOperation
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from include.ingest.landed_avro import AvroRows
from include.ingest.landed_values import (
    EXACT_JSON,
    JSON,
    Instant,
    LocalTime,
    RefusedError,
    Rescue,
    Row,
    Text,
    TypedRows,
    UnreadableFileError,
    columns_to_read,
    is_read_of_text,
    shown,
)
from include.lake.delta_log import first_line, is_of_machine
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

    def values(self, item: str) -> Row:
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
    """JSON values that may span lines: those of an array, or one after the other."""

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


def _skip(text: str, at: int) -> int:
    found = BLANK.match(text, at)
    return at if found is None else found.end()


def _end_of(text: str, at: int) -> int:
    """Return where the value ends that begins there; raises ValueError where none does."""
    try:
        return JSON.raw_decode(text, at)[1]
    except RecursionError:
        raise ValueError(DEEP) from None


# A refused row is kept with its header, which may be much longer than it.
MAX_HEADER_COPIES = 64 * 1024**2  # characters of a file; its other refused rows have none
# The longest cell is bounded by the file's size, which is bounded itself.
csv.field_size_limit(2**31 - 1)
# For numbers with a decimal comma; a point in one of them is refused.
POINT = str.maketrans(",.", ".,")


class CsvRow(NamedTuple):
    """The cells of a record, or what is wrong with it, and the text it was read from."""

    cells: list[str] | csv.Error
    text: str


class CsvRows:
    """Records of CSV under their header, that of the file or the declared one."""

    def __init__(self, text: str, source: Source) -> None:
        self._text = text
        self._csv = source.csv
        self._read_of_text = {f.landed for f in source.fields if is_read_of_text(f.type)}
        self._with_comma = set()
        if self._csv.decimal != ".":
            points = ("float", "double", "decimal")
            self._with_comma = {f.landed for f in source.fields if f.type.startswith(points)}
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

    def values(self, item: CsvRow) -> Row:
        cells = item.cells
        if isinstance(cells, csv.Error):
            raise RefusedError("not_csv", str(cells))
        if len(cells) != len(self._columns):
            said = f"{counted(len(cells), 'cell')}, the header has {len(self._columns)}"
            raise RefusedError("not_csv", said)
        texts, commas = self._read_of_text, self._with_comma
        if commas:
            named = zip(self._columns, cells, strict=True)
            cells = [cell.translate(POINT) if name in commas else cell for name, cell in named]
        named = zip(self._columns, cells, strict=True)
        return {name: Text(cell) if name in texts else cell for name, cell in named if cell}

    def raw(self, item: CsvRow) -> str:
        text = item.text.rstrip(EOL)
        if self._csv.header is not None:
            return text
        self._copies_left -= len(self._header)
        return text if self._copies_left < 0 else f"{self._header}\n{text}"


def _csv_row(raw: str, source: Source) -> Row:
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
    read: list[str] = []

    def lines() -> Iterator[str]:
        for line in io.StringIO(text, newline=""):
            read.append(line)
            yield line

    quoting = csv.QUOTE_NONE if declared.quote is None else csv.QUOTE_MINIMAL
    style = {"delimiter": declared.delimiter, "quotechar": declared.quote, "quoting": quoting}
    reader = csv.reader(lines(), strict=True, **style)  # type: ignore[arg-type]
    while True:
        read.clear()
        try:
            cells: list[str] | csv.Error = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                raise UnreadableFileError(f"a quote in {shown(read[0])} never ends") from None
            cells = error
        if not isinstance(cells, list) or len(cells) > 1 or "".join(cells).strip(BLANKS):
            yield CsvRow(cells, "".join(read))


PER_MICROSECOND = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
ROWS_AT_ONCE = 10_000
# A value that is there often is stored once, so that in memory a file may be larger than unpacked.
BYTES_A_VALUE, MEMORY_FACTOR = 8, 4
# What Arrow raises, for a zone that nobody knows a LookupError.
NO_PYTHON_VALUE = (ValueError, OverflowError, LookupError, pa.ArrowException)


class ParquetRows(TypedRows):
    """Rows of a Parquet file, by its column types.

    Only columns that the source takes are read. A file of a Delta table comes with its `schema` and
    the values of its `partition`.
    """

    def __init__(
        self,
        content: bytes,
        source: Source,
        schema: pa.Schema | None = None,
        partition: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        try:
            self._table = _read_parquet(content, source, schema, partition)
        except (pa.ArrowException, OSError, ValueError) as error:
            if is_of_machine(error):
                raise
            raise UnreadableFileError(f"not a whole Parquet file: {first_line(error)}") from None

    def items(self) -> Iterator[dict[str, object]]:
        names = self._table.schema.names
        for batch in self._table.to_batches(max_chunksize=ROWS_AT_ONCE):
            for row in zip(*map(_values, batch.columns), strict=True):
                yield dict(zip(names, row, strict=True))


def _read_parquet(
    content: bytes, source: Source, schema: pa.Schema | None, partition: Mapping[str, object]
) -> pa.Table:
    # Instants in 96 bits, as Spark writes them, reach further than nanoseconds do.
    file = pq.ParquetFile(pa.BufferReader(content), coerce_int96_timestamp_unit="us")
    # Of a Delta table also Delta's own columns, which its schema lacks (`__is_cdc`).
    own = [name for name in file.schema_arrow.names if schema is None or name in schema.names]
    added = [name for name in partition if name not in own]
    wanted = columns_to_read(own + added, source, "Parquet")
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    unpacked_bytes = sum(group.total_byte_size for group in groups)
    value_bytes = file.metadata.num_rows * len(wanted) * BYTES_A_VALUE
    if max(unpacked_bytes, value_bytes // MEMORY_FACTOR) > source.max_file_bytes:
        said = f"unpacks to {unpacked_bytes} bytes, in memory {value_bytes} or more: split it"
        raise UnreadableFileError(said)
    table = file.read(columns=[name for name in wanted if name not in added])
    table.validate(full=True)
    if schema is None:
        return table
    leaves = map(file.schema.column, range(len(file.schema)))
    if any(leaf.physical_type == "INT96" for leaf in leaves):  # which do not say that they are UTC
        known = [schema.field(name) for name in table.column_names if name in schema.names]
        table = table.select([field.name for field in known]).cast(pa.schema(known))
    for name in added:
        value = pa.scalar(partition[name], schema.field(name).type)
        table = table.append_column(name, pa.repeat(value, file.metadata.num_rows))
    return table


def _values(column: pa.Array) -> list[object]:
    if not pa.types.is_timestamp(column.type):
        return _python_values(_with_python_times(column))
    times, divisor = PER_MICROSECOND[column.type.unit]
    kind = LocalTime if column.type.tz is None else Instant
    # In Python's integers: Arrow's cast rounds towards zero, and overflows.
    return [
        None if value is None else kind(value * times // divisor)
        for value in column.cast(pa.int64()).to_pylist()
    ]


def _with_python_times(column: pa.Array) -> pa.Array:
    """The column, its nanoseconds truncated to microseconds, which is what Python has."""
    kind = _in_microseconds(column.type)
    try:
        return column if kind == column.type else column.cast(kind, safe=False)
    except pa.ArrowException as error:  # members of one name: each value is refused
        if is_of_machine(error):
            raise
        return column


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):  # Python has coarser ones, which a cast would overflow
        return pa.timestamp("us", kind.tz) if kind.unit == "ns" else kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_in_microseconds(kind.key_type), _in_microseconds(kind.item_type))
    return pa.list_(_in_microseconds(kind.value_type)) if pa.types.is_list(kind) else kind


class Unreadable(str):
    """The text of a value that Python has none for, such as a date after the year 9999."""

    __slots__ = ()


def _python_values(column: pa.Array) -> list[object]:
    try:
        return list(column.to_pylist())
    except NO_PYTHON_VALUE as error:
        if is_of_machine(error):
            raise
        if len(column) == 1:
            return [Unreadable(f"a {column.type} that cannot be read")]
        return [_python_values(column.slice(row, 1))[0] for row in range(len(column))]


# `items` are rows as the format holds them; `values` has one by field, or raises RefusedError; and
# from its `raw` text `row_of_raw` reads the same values again.
LandedRows = JsonRows | CsvRows | ParquetRows | AvroRows


def _json(content: bytes, source: Source) -> LandedRows:
    text = _text_of(content, "utf-8")
    start = _skip(text, 0)
    is_document = text.startswith("[", start)
    if text.startswith("{", start):  # a broken line is refused alone
        with suppress(ValueError):
            is_document = "\n" in text[start : _end_of(text, start)]
    return JsonDocument(text, source) if is_document else JsonRows(text, source)


def _csv(content: bytes, source: Source) -> LandedRows:
    return CsvRows(_text_of(content, source.csv.encoding), source)


def _text_of(content: bytes, encoding: str) -> str:
    """The text, without a byte order mark; raises UnreadableFileError when it is not in the encoding."""
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        said = f"not {encoding.upper()}: {error.reason} at byte {error.start}"
        raise UnreadableFileError(said) from None
    if "\0" in text:
        raise UnreadableFileError("binary: it has NUL bytes")
    return text.removeprefix("\ufeff")


Opener = Callable[[bytes, Source], LandedRows]
OPENERS: dict[str, Opener] = dict.fromkeys((".jsonl", ".ndjson", ".json"), _json)
OPENERS |= {".csv": _csv, ".parquet": ParquetRows, ".avro": AvroRows}
GZIP = b"\x1f\x8b"


def open_rows(name: str, content: bytes, source: Source) -> LandedRows:
    """The rows of the file `name`; raises UnreadableFileError when it cannot be read as a whole."""
    opener = _opener_of(name)
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


def _opener_of(name: str) -> Opener | None:
    stem = name.lower().removesuffix(".gz")
    return next((of for ending, of in OPENERS.items() if stem.endswith(ending)), None)


def row_of_raw(name: str, raw: str, source: Source) -> Row:
    """The values of a row of the file `name`, of its raw text or a correction: JSON, or as CSV has it."""
    try:
        folder = folder_values(name, source)
    except UnreadableFileError as error:
        raise RefusedError("missing_field", str(error)) from None
    reads_csv = _opener_of(name) is _csv and not _is_object(raw)
    values = _csv_row(raw, source) if reads_csv else JsonRows("", source).values(raw)
    return {**values, **folder}


def _is_object(raw: str) -> bool:
    try:
        return isinstance(json.loads(raw), dict)
    except (ValueError, RecursionError):
        return False


def has_types(name: str) -> bool:
    """True if values of the file `name` have types that the raw text of its rows does not tell."""
    return _opener_of(name) in (ParquetRows, AvroRows)


NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_values(name: str, source: Source) -> dict[str, object]:
    """The values that the folders of the file `name` give the source's fields, by `Field.landed`."""
    found: dict[str, object] = {}
    for field in source.fields:
        if not field.from_folder:
            continue
        folders = PurePosixPath(name).parts[:-1]
        texts = [of.removeprefix(field.landed) for of in folders if of.startswith(field.landed)]
        if len(texts) > 1 or (field.required and texts in ([], [NULL])):
            said = f"its folders say {field.landed} {len(texts)} times, expected once"
            raise UnreadableFileError(said)
        text = unquote(texts[0]) if texts and texts[0] != NULL else None
        is_read = text is not None and is_read_of_text(field.type)
        found[field.landed] = Text(text) if is_read else text
    return found
