"""The rows of a Parquet file, by its column types; only the source's own columns are read."""

import json
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from include.lake.delta_log import first_line
from include.landing.landed_row import Instant, UnreadableFileError, check_columns
from include.settings import Source

PER_MICROSECOND = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
ROWS_AT_ONCE = 10_000


class ParquetRows:
    """Parquet: see `LandedRows` for what its methods promise."""

    def __init__(self, content: bytes, source: Source) -> None:
        self._time_field = source.time_field
        try:
            self._table = _read_parquet(content, source)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise UnreadableFileError(f"not a whole Parquet file: {first_line(error)}") from None

    def items(self) -> Iterator[dict[str, object]]:
        for batch in self._table.to_batches(max_chunksize=ROWS_AT_ONCE):
            columns = [
                _instants(column) if name == self._time_field else column.to_pylist()
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            for row in zip(*columns, strict=True):
                yield dict(zip(batch.schema.names, row, strict=True))

    def values(self, item: Mapping[str, object]) -> Mapping[str, object]:
        return item

    def raw(self, item: Mapping[str, object]) -> str:
        time = item[self._time_field]
        text = (
            {**item, self._time_field: _instant_text(time)} if isinstance(time, Instant) else item
        )
        return json.dumps(text, default=str, ensure_ascii=False)


def _read_parquet(content: bytes, source: Source) -> pa.Table:
    file = pq.ParquetFile(pa.BufferReader(content))
    groups = range(file.metadata.num_row_groups)
    unpacked_bytes = sum(file.metadata.row_group(group).total_byte_size for group in groups)
    if unpacked_bytes > source.max_file_bytes:
        raise UnreadableFileError(f"unpacks to {unpacked_bytes} bytes: split it")
    columns = list(file.schema_arrow.names)
    check_columns(columns, source, "Parquet")
    known = [source.time_field, *(field.name for field in source.fields)]
    table = file.read(columns=[name for name in known if name in columns])
    table.validate(full=True)
    return table


def _instants(column: pa.Array) -> list[object]:
    if not pa.types.is_timestamp(column.type) or column.type.tz is None:
        return _as_text(column)
    times, divisor = PER_MICROSECOND[column.type.unit]
    # In Python's integers: Arrow's cast rounds towards zero, and overflows.
    return [
        None if value is None else Instant(value * times // divisor)
        for value in column.cast(pa.int64()).to_pylist()
    ]


def _as_text(column: pa.Array) -> list[object]:
    if pa.types.is_temporal(column.type):
        return list(column.cast(pa.string()).to_pylist())  # no zone: refused, with its text shown
    return list(column.to_pylist())


def _instant_text(instant: Instant) -> str:
    scalar = pa.scalar(instant.micros, pa.timestamp("us"))
    return f"{scalar.cast(pa.string()).as_py()}Z"
