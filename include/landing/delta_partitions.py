"""Values of the columns that somebody else's Delta table is partitioned by: its log has them, and not its files.

A batch that was begun may outlast the log of its versions, or its table may be put back as an older
copy. Then the newest version says what it can of a file.
"""

from functools import lru_cache
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable as OpenTable

from include.landing.arrivals import OriginError
from include.landing.delta_commits import added_files, open_table, table_at
from include.landing.delta_parts import VersionPart


class LostPartitionError(OriginError):
    """The log does not say any more of which partition a file is."""


def partition_values(uri: str, part: VersionPart) -> pa.Table | None:
    """One row of these columns; None without any. LostPartitionError where the log has lost them."""
    files, schema = _files_at(uri, part.version)
    if not schema.names:
        return None
    if part.path not in files:
        raise _lost(uri, part)
    values = files[part.path]["partition"]
    return pa.Table.from_pylist([{name: values[name] for name in schema.names}], schema=schema)


def has_values(uri: str, part: VersionPart) -> bool:
    """Whether they are known of a file that is to be read."""
    try:
        partition_values(uri, part)
    except LostPartitionError:
        return False
    return True


def _lost(uri: str, part: VersionPart) -> LostPartitionError:
    return LostPartitionError(
        f"of which partition {part.path} of {uri} is cannot be told any more, as its log has lost version "
        f"{part.version}"
    )


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
