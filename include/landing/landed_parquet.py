"""The rows of a Parquet file, by its column types; only the source's own columns are read."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from include.lake.delta_log import first_line, is_of_machine
from include.landing.landed_content import what_it_is
from include.landing.landed_values import (
    Instant,
    LocalTime,
    UnreadableFileError,
    check_columns,
    landed_columns,
)
from include.landing.rescue import json_text
from include.settings import Source

# Bytes of a value in memory; of texts and the like that of where each begins.
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
OFFSET = 4


def refuse_bomb(content: bytes, file: pq.ParquetFile, wanted: Sequence[str], most: int) -> None:
    """UnreadableFileError when the wanted columns come to more than `most` bytes in memory.

    What Arrow raises, when one of them is not to be read.
    """
    metadata = file.metadata
    _try_first_rows(file, wanted)
    chunks = list(_chunks(metadata, wanted))
    known = sum(chunk.num_values * _width(metadata, chunk) for chunk in chunks)
    _refuse(known, most)
    texts = [chunk for chunk in chunks if chunk.physical_type == "BYTE_ARRAY"]
    if sum(chunk.num_values * chunk.total_uncompressed_size for chunk in texts) > most:
        _refuse(
            known + _text_bytes(content, sorted({chunk.path_in_schema for chunk in texts})), most
        )


def _try_first_rows(file: pq.ParquetFile, wanted: Sequence[str]) -> None:
    """Raises where what the footer says of a column's part is damaged, as a reader finds out: asked
    for that alone, PyArrow (26.0.1) ends the process, as no one catches there what C++ throws."""
    for group in range(file.metadata.num_row_groups):
        rows = file.iter_batches(1, row_groups=[group], columns=wanted, use_threads=False)
        next(rows, None)


def _is_of(path: str, columns: Sequence[str]) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in columns)


def _refuse(found: int, most: int) -> None:
    if found > most:
        raise UnreadableFileError(f"comes to {found} bytes in memory, more than {most}: split it")


def _chunks(metadata: pq.FileMetaData, wanted: Sequence[str]) -> Iterator[pq.ColumnChunkMetaData]:
    paths = (metadata.schema.column(index).path for index in range(metadata.num_columns))
    columns = [index for index, path in enumerate(paths) if _is_of(path, wanted)]
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        yield from map(group.column, columns)


def _width(metadata: pq.FileMetaData, chunk: pq.ColumnChunkMetaData) -> int:
    if chunk.physical_type != "FIXED_LEN_BYTE_ARRAY":
        return WIDTHS.get(chunk.physical_type, OFFSET)
    columns = map(metadata.schema.column, range(metadata.num_columns))
    return next(int(column.length) for column in columns if column.path == chunk.path_in_schema)


def _text_bytes(content: bytes, paths: Sequence[str]) -> int:
    """The bytes of all texts, each as often as it is there. In memory they are there once."""
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=paths)
    found = 0
    for group in range(file.metadata.num_row_groups):
        for column in file.read_row_group(group, columns=paths).columns:
            found += sum(map(_bytes, _leaves(column.combine_chunks())))
    return found


def _leaves(array: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    if isinstance(array, pa.ChunkedArray):
        for chunk in array.chunks:
            yield from _leaves(chunk)
    elif pa.types.is_map(array.type):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif pa.types.is_struct(array.type) or pa.types.is_list(array.type):
        flat = array.flatten()
        for part in flat if isinstance(flat, list) else [flat]:
            yield from _leaves(part)
    else:
        yield array


def _bytes(leaf: pa.Array) -> int:
    if not pa.types.is_dictionary(leaf.type):
        return int(leaf.nbytes)
    lengths = pc.binary_length(leaf.dictionary).cast(pa.int64())
    return int(pc.sum(lengths.take(leaf.indices)).as_py() or 0)


PER_MICROSECOND = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
ROWS_AT_ONCE = 10_000
# A value that is there often is stored once, so that in memory a file may be larger than unpacked.
MEMORY_FACTOR = 4
# What Arrow raises, for a zone that nobody knows a LookupError.
NO_PYTHON_VALUE = (ValueError, OverflowError, LookupError, pa.ArrowException)


class ParquetRows:
    """Parquet: see `LandedRows` for what its methods promise."""

    def __init__(self, content: bytes, source: Source) -> None:
        try:
            self._table = _read_parquet(content, source)
        except (pa.ArrowException, OSError, ValueError) as error:
            if is_of_machine(error):
                raise
            raise UnreadableFileError(f"not a whole Parquet file: {first_line(error)}") from None

    def items(self) -> Iterator[dict[str, object]]:
        names = self._table.schema.names
        for batch in self._table.to_batches(max_chunksize=ROWS_AT_ONCE):
            for row in zip(*map(_values, batch.columns), strict=True):
                yield dict(zip(names, row, strict=True))

    def values(self, item: Mapping[str, object]) -> Mapping[str, object]:
        return item

    def raw(self, item: Mapping[str, object]) -> str:
        return json_text(item)


def _read_parquet(content: bytes, source: Source) -> pa.Table:
    if not content.startswith(b"PAR1"):
        raise UnreadableFileError(f"not a whole Parquet file: it is {what_it_is(content)}")
    # Instants in 96 bits, as Spark writes them, reach further than nanoseconds do.
    file = pq.ParquetFile(pa.BufferReader(content), coerce_int96_timestamp_unit="us")
    groups = range(file.metadata.num_row_groups)
    unpacked_bytes = sum(file.metadata.row_group(group).total_byte_size for group in groups)
    if unpacked_bytes > source.max_file_bytes:
        raise UnreadableFileError(f"unpacks to {unpacked_bytes} bytes: split it")
    columns = list(file.schema_arrow.names)
    check_columns(columns, source, "Parquet")
    wanted = landed_columns(source, columns)
    refuse_bomb(content, file, wanted, MEMORY_FACTOR * source.max_file_bytes)
    table = file.read(columns=wanted)
    table.validate(full=True)
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
    """With times as Python has them: of nanoseconds the last digits are cut off."""
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
        return [_python_value(scalar) for scalar in column]


def _python_value(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except NO_PYTHON_VALUE:
        return Unreadable(f"a {scalar.type} that cannot be read")
