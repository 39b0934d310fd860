"""The log of somebody else's Delta table, and the rows and partition values of the files that it names."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable as OpenTable
from deltalake.exceptions import DeltaError

from include.fold.arrow_values import conformed_table
from include.lake.delta_log import actions_in, delta_table, first_line, is_of_machine
from include.lake.paths import files_of
from include.landing.connector import Batch, OriginError, Outcome, Split, lost_input
from include.landing.landed_values import UnreadableFileError
from include.landing.parse_files import outcomes_of_content
from include.origins import DeltaTable
from include.settings import Source

Actions = Sequence[Mapping[str, Any]]


def open_table(uri: str, version: int | None = None) -> OpenTable:
    """The table, as of a version; OriginError when there is none, or it cannot be read."""
    try:
        return delta_table(uri, version=version)
    except (DeltaError, OSError) as error:
        at = "" if version is None else f" as of version {version}"
        raise OriginError(
            f"the Delta table {uri}{at} cannot be read: {first_line(error)}",
            code="unreadable_input",
        ) from error


def table_at(uri: str, version: int) -> OpenTable | None:
    """The table, as of a version; None where its log has that no more.

    OriginError where a machine fails.
    """
    try:
        return open_table(uri, version)
    except OriginError as error:
        why = error.__cause__
        if why is None or isinstance(why, OSError) or is_of_machine(why):
            raise
        return None


def added_files(table: OpenTable) -> dict[str, dict[str, Any]]:
    """The files of a version of the table by path: their bytes, and values of partitions."""
    actions = pa.table(table.get_add_actions(flatten=False))
    return {unquote(row["path"]): row for row in actions.to_pylist()}


def actions_of(uri: str, version: int) -> list[dict[str, Any]]:
    """Of the commit of a version; none where that was cleaned up, or is not whole.

    Behind a checkpoint nobody else reads it: a damaged one would lose its rows without a word.
    """
    try:
        with files_of(uri).open_input_stream(f"_delta_log/{version:020}.json") as file:
            actions = actions_in(bytes(file.read()))
    except (FileNotFoundError, ValueError):
        return []
    return actions if all(isinstance(action, dict) for action in actions) else []


def bodies(actions: Actions, kind: str) -> list[Mapping[str, Any]]:
    """Of the actions of one kind."""
    return [action[kind] for action in actions if kind in action]


def has_values(uri: str, split: Split) -> bool:
    """Whether the log still says of which partition a file is."""
    files, schema = _files_at(uri, split.first)
    return not schema.names or split.name in files


def partition_values(uri: str, split: Split) -> pa.Table | None:
    """One row of these columns, of a file of which they are known; None without any."""
    files, schema = _files_at(uri, split.first)
    if not schema.names:
        return None
    values = files[str(split.name)]["partition"]
    return pa.Table.from_pylist([{name: values[name] for name in schema.names}], schema=schema)


@lru_cache(maxsize=64)
def schema_at(uri: str, version: int) -> pa.Schema:
    """Of all columns."""
    return pa.schema(_table_for(uri, version).schema().to_arrow())


@lru_cache(maxsize=64)
def _files_at(uri: str, version: int) -> tuple[dict[str, dict[str, Any]], pa.Schema]:
    table = _table_for(uri, version)
    columns = table.metadata().partition_columns
    if not columns:
        return {}, pa.schema([])
    schema = pa.schema(table.schema().to_arrow())
    return added_files(table), pa.schema([schema.field(name) for name in columns])


def _table_for(uri: str, version: int) -> OpenTable:
    """As of a version; of the newest where the log has that no more."""
    table = table_at(uri, version)
    return open_table(uri) if table is None else table


def outcomes_of_added(source: Source, batch: Batch, split: Split) -> Iterator[Outcome]:
    """Every row of one file, and last the file with their number. OriginError when the file is gone."""
    content = partial(_content, source, split)
    yield from outcomes_of_content(content, source, split.source_file, batch.ingested_at_us)


def _content(source: Source, split: Split) -> bytes:
    origin = source.origin
    assert isinstance(origin, DeltaTable)
    try:
        with files_of(origin.uri).open_input_file(split.name) as file:
            if file.size() > source.max_file_bytes:
                raise UnreadableFileError(
                    f"{file.size()} bytes, more than max_file_bytes of {source.name} allows"
                )
            content = bytes(file.read())
    except FileNotFoundError as error:
        raise _gone(source, split, "is gone, as after a VACUUM") from error
    if not has_values(origin.uri, split):
        raise _gone(source, split, "is of a partition that its log has lost")
    try:
        return _completed(content, origin.uri, split, partition_values(origin.uri, split))
    except (pa.ArrowException, OSError, ValueError) as error:
        if is_of_machine(error):
            raise
        # Not as it is: of the fields it may lack some.
        raise UnreadableFileError(f"not a whole Parquet file: {first_line(error)}") from None


def _gone(source: Source, split: Split, why: str) -> OriginError:
    said = f"{split.name}, of version {split.first}, was to be taken in and {why}"
    return lost_input(source.name, said)


def _completed(content: bytes, uri: str, split: Split, values: pa.Table | None) -> bytes:
    """The file with the columns of its folders, and its instants as such: unless it is told
    otherwise, Spark writes these in 96 bits, which do not say that they are UTC."""
    file = pq.ParquetFile(pa.BufferReader(content), coerce_int96_timestamp_unit="us")
    leaves = range(len(file.schema))
    has_instants = any(file.schema.column(leaf).physical_type == "INT96" for leaf in leaves)
    if values is None and not has_instants:
        return content
    rows = file.read()
    if has_instants:
        schema = schema_at(uri, split.first)
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
