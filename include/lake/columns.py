"""Columns of tables, documented, and their SQL types as Arrow has them."""

from collections.abc import Iterable
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


def same_columns(table: DeltaTable, schema: pa.Schema) -> bool:
    """Whether a Delta table has the columns of `schema`, by name, order and type."""
    found = pa.schema(table.schema().to_arrow())
    return columns_of(found) == columns_of(schema)


def columns_of(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Names and types, without comments or what may be null."""
    return [(field.name, field.type) for field in schema]
