"""Columns of tables, documented, their SQL types as Arrow has them, and tables made with them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

ARROW_TYPES = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}
INSTANT = ARROW_TYPES["timestamp"]


class Column(NamedTuple):
    """A column of a table, with the comment that documents it there."""

    name: str
    type: str
    comment: str
    nullable: bool = True


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a column's SQL type."""
    if kind.startswith("array<"):
        return pa.list_(arrow_type(kind[len("array<") : -1]))
    if kind.startswith("struct<"):
        fields = (field.split(":", 1) for field in kind[len("struct<") : -1].split(","))
        return pa.struct([(name, arrow_type(of)) for name, of in fields])
    return ARROW_TYPES[kind]


def sql_type(kind: pa.DataType) -> str:
    """The other way round, of a plain type; Arrow's own name where SQL has none."""
    return {arrow: sql for sql, arrow in ARROW_TYPES.items()}.get(kind, str(kind))


def documented(columns: Iterable[Column]) -> pa.Schema:
    """The schema of a table that delta-rs is to create, with the columns' comments."""
    return pa.schema(
        [
            pa.field(c.name, arrow_type(c.type), c.nullable, metadata={"comment": c.comment})
            for c in columns
        ]
    )


def without_comments(schema: pa.Schema) -> pa.Schema:
    """The schema of data for that table: delta-rs refuses comments that are not the table's."""
    return pa.schema([field.remove_metadata() for field in schema])


# A table is opened from its newest checkpoint and each commit since: a quarter of the time of
# delta-rs's interval of 100, and what Spark does by itself.
CHECKPOINT_INTERVAL = {"delta.checkpointInterval": "10"}


def create_if_absent(
    path: str,
    columns: Iterable[Column],
    comment: str,
    properties: Mapping[str, str],
    partition_by: Sequence[str] = (),
    name: str | None = None,
) -> None:
    """Make the Delta table at `path`, without a row; one that is there already stays as it is."""
    if DeltaTable.is_deltatable(path):
        return  # also when its log is damaged: whoever reads it says so
    DeltaTable.create(
        path,
        schema=documented(columns),
        mode="ignore",  # another process may be making it
        partition_by=list(partition_by),
        name=name,
        description=comment,
        configuration={**CHECKPOINT_INTERVAL, **properties},
    )


def found_columns(path: str) -> list[tuple[str, pa.DataType]]:
    """Names and types of a Delta table's columns."""
    return columns_of(pa.schema(DeltaTable(path).schema().to_arrow()))


def columns_of(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Names and types, without comments or what may be null."""
    return [(field.name, field.type) for field in schema]
