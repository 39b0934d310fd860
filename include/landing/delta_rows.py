"""The rows of a file of somebody else's Delta table, judged as those of a landed Parquet file."""

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from include.fold.conform import conformed_table
from include.lake.delta_log import first_line, is_of_machine
from include.lake.paths import files_of
from include.landing.arrivals import OriginError
from include.landing.batch import Batch
from include.landing.delta_partitions import LostPartitionError, partition_values, schema_at
from include.landing.delta_parts import GONE, VersionPart, part_named
from include.landing.parse_files import Outcome, file_outcome, outcomes_of_content
from include.landing.refusals import UnreadableFileError
from include.landing.rescue import Rescue
from include.origins import DeltaTable
from include.settings import Source


def outcomes_of_added(source: Source, batch: Batch, name: str) -> Iterator[Outcome]:
    """Every row of one file, and last the file with their number; of no file, that alone.

    OriginError when the file is gone.
    """
    part = part_named(name)
    given_up = f"{part.version}/{GONE}{part.path}" in batch.files
    rescue = Rescue(source)
    rows_in_file = 0
    if part.is_file and not given_up:
        read = partial(_content, source, part)
        for outcome in outcomes_of_content(read, source, name, batch.ingested_at_us, rescue):
            rows_in_file += 1
            yield outcome
    yield file_outcome(name, rows_in_file, rescue)


def _content(source: Source, part: VersionPart) -> bytes:
    origin = source.origin
    assert isinstance(origin, DeltaTable)
    try:
        with files_of(origin.uri).open_input_file(part.path) as file:
            if file.size() > source.max_file_bytes:
                raise UnreadableFileError(
                    f"{file.size()} bytes, more than max_file_bytes of {source.name} allows"
                )
            content = bytes(file.read())
    except FileNotFoundError as error:
        raise OriginError(
            f"{part.path} of {origin.uri} was to be taken in and is gone, as after a VACUUM. To "
            "go on without it",
            subject=source.name,
            command=f"./stateful skip-lost {source.name} --apply",
        ) from error
    try:
        values = partition_values(origin.uri, part)
    except LostPartitionError as error:
        raise OriginError(
            f"{error}. To go on without it",
            subject=source.name,
            command=f"./stateful skip-lost {source.name} --apply",
        ) from error
    try:
        return _completed(content, origin.uri, part, values)
    except (pa.ArrowException, OSError, ValueError) as error:
        if is_of_machine(error):
            raise
        # Not as it is: of the fields it may lack some.
        raise UnreadableFileError(f"not a whole Parquet file: {first_line(error)}") from None


def _completed(content: bytes, uri: str, part: VersionPart, values: pa.Table | None) -> bytes:
    """The file with the columns of its folders, and its instants as such: unless it is told
    otherwise, Spark writes these in 96 bits, which do not say that they are UTC."""
    file = pq.ParquetFile(pa.BufferReader(content), coerce_int96_timestamp_unit="us")
    leaves = range(len(file.schema))
    has_instants = any(file.schema.column(leaf).physical_type == "INT96" for leaf in leaves)
    if values is None and not has_instants:
        return content
    rows = file.read()
    if has_instants:
        schema = schema_at(uri, part.version)
        known = [schema.field(name) for name in rows.column_names if name in schema.names]
        rows = conformed_table(rows, pa.schema(known))
    return _as_parquet(_with_partition_values(rows, values))


def _with_partition_values(rows: pa.Table, values: pa.Table | None) -> pa.Table:
    if values is None:
        return rows
    for name in values.column_names:
        if name not in rows.column_names:
            value = values[name][0]
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows


def _as_parquet(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return bytes(sink.getvalue())
