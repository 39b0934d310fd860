"""Values of the columns that somebody else's Delta table is partitioned by: its log has them, and not its files.

A batch that was begun may outlast the log of its versions, or its table may be put back as an older
copy. Then the newest version says what it can of a file.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable as OpenTable

from include.landing.arrivals import OriginError
from include.landing.delta_commits import (
    LostCommitError,
    actions_of,
    added_files,
    bodies,
    open_table,
    table_at,
)
from include.landing.delta_feed import is_of_feed
from include.landing.delta_parts import VersionPart


class LostPartitionError(OriginError):
    """The log does not say any more of which partition a file is."""


def partition_values(uri: str, part: VersionPart) -> pa.Table | None:
    """One row of these columns; None without any. LostPartitionError where the log has lost them."""
    files, schema = _files_at(uri, part.version)
    if not schema.names:
        return None
    if is_of_feed(part.path):
        return _values_of_feed(uri, part, schema)
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


def _values_of_feed(uri: str, part: VersionPart, schema: pa.Schema) -> pa.Table:
    """By the log, which has them as text."""
    texts = _changes_of(uri, part.version).get(part.path)
    if texts is None:
        raise _lost(uri, part)
    try:
        values = [_of_text(texts[field.name], field.type) for field in schema]
    except pa.ArrowException as error:
        raise OriginError(f"{part.path} of {uri}: its partition is not read: {error}") from error
    return pa.table(values, schema=schema)


@lru_cache(maxsize=64)
def _changes_of(uri: str, version: int) -> dict[str, Mapping[str, str | None]]:
    """The files of changes of a version; none where its commit is lost."""
    try:
        changes = bodies(actions_of(uri, version), "cdc")
    except LostCommitError:
        return {}
    return {unquote(change["path"]): change["partitionValues"] for change in changes}


def _of_text(text: str | None, kind: pa.DataType) -> pa.Array:
    """As Delta writes values of partitions: nothing for null, and of an instant no zone, or Z."""
    value = pa.array([text or None], pa.string())
    if pa.types.is_timestamp(kind) and kind.tz and not (text or "Z").endswith("Z"):
        return value.cast(pa.timestamp("us")).cast(kind)
    return value.cast(kind)
