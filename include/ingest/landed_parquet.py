"""The rows of a Parquet file, by its column types; only the source's own columns are read."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq

from include.ingest.landed_values import Instant, LocalTime, UnreadableFileError, columns_to_read
from include.ingest.rescue import TypedRows
from include.lake.delta_log import first_line, is_of_machine
from include.settings import Source

PER_MICROSECOND = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
ROWS_AT_ONCE = 10_000
# A value that is there often is stored once, so that in memory a file may be larger than unpacked.
BYTES_A_VALUE, MEMORY_FACTOR = 8, 4
# What Arrow raises, for a zone that nobody knows a LookupError.
NO_PYTHON_VALUE = (ValueError, OverflowError, LookupError, pa.ArrowException)


class ParquetRows(TypedRows):
    """Parquet; `schema` and `partition` of the Delta table that it is a file of."""

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
    own = list(file.schema_arrow.names)
    added = [name for name in partition if name not in own]
    wanted = columns_to_read(own + added, source, "Parquet")
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    unpacked_bytes = sum(group.total_byte_size for group in groups)
    value_bytes = file.metadata.num_rows * len(wanted) * BYTES_A_VALUE
    if max(unpacked_bytes, value_bytes // MEMORY_FACTOR) > source.max_file_bytes:
        raise UnreadableFileError(
            f"unpacks to {unpacked_bytes} bytes, in memory {value_bytes} or more: split it"
        )
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
