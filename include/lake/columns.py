"""Documented columns of tables, and SQL types as Arrow types."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from include.fold.records import SqlType, sql_type

ARROW_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
SQL_NAMES = {arrow: name for name, arrow in ARROW_TYPES.items()}
INSTANT = ARROW_TYPES["timestamp"]


def instant_scalar(micros: int) -> pa.Scalar:
    """Return an instant in microseconds since 1970, UTC, to compare columns of timestamps with."""
    return pa.scalar(micros, INSTANT)


class Column(NamedTuple):
    """A column of a table, with the comment that documents it there."""

    name: str
    type: str
    comment: str
    nullable: bool = True
    marks: Mapping[str, str] = MappingProxyType({})  # more of its metadata


def listed(text: str) -> tuple[Column, ...]:
    """Return the columns of a text that has one in each line: its name, its type, and the comment."""
    lines = (line.split(maxsplit=2) for line in text.strip().splitlines())
    return tuple(Column(name, kind, comment) for name, kind, comment in lines)


@lru_cache
def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a column's SQL type."""
    return ARROW_TYPES.get(kind) or _arrow_type(sql_type(kind))


def _arrow_type(kind: SqlType) -> pa.DataType:
    parts = [_arrow_type(part) for part in kind.parts]
    if kind.name == "array":
        return pa.list_(*parts)
    if kind.name == "map":
        return pa.map_(*parts)
    if kind.name == "struct":
        return pa.struct(list(zip(kind.names, parts, strict=True)))
    if kind.name == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    return ARROW_TYPES[kind.name]


def sql_name(kind: pa.DataType) -> str:
    """Return the SQL type of an Arrow type; Arrow's own name where SQL has none."""
    return str(_sql_type(kind))


def _sql_type(kind: pa.DataType) -> SqlType:
    if pa.types.is_decimal(kind):
        return SqlType("decimal", precision=kind.precision, scale=kind.scale)
    if pa.types.is_map(kind):
        return SqlType("map", (_sql_type(kind.key_type), _sql_type(kind.item_type)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return SqlType("array", (_sql_type(kind.value_type),))
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        parts = tuple(_sql_type(field.type) for field in fields)
        return SqlType("struct", parts, tuple(field.name for field in fields))
    return SqlType(SQL_NAMES.get(kind, str(kind)))


def documented(columns: Iterable[Column]) -> pa.Schema:
    """Return the schema, with the columns' comments, of a table that delta-rs is to create."""
    columns = list(columns)
    # With times without a zone delta-rs 1.6 makes a table with NOT NULL that Spark refuses.
    is_any = any("timestamp_ntz" in column.type for column in columns)
    fields = (pa.field(c.name, arrow_type(c.type), c.nullable or is_any) for c in columns)
    marks = ({"comment": c.comment, **c.marks} for c in columns)
    return pa.schema([field.with_metadata(of) for field, of in zip(fields, marks, strict=True)])


def without_comments(schema: pa.Schema) -> pa.Schema:
    """Return the schema of data for that table: delta-rs refuses comments that are not the table's."""
    return pa.schema([field.remove_metadata() for field in schema])


APPEND_ONLY = "delta.appendOnly"
# A table is opened from its newest checkpoint and each commit since: in a quarter of the time that
# delta-rs's interval of 100 takes. It is Spark's default.
CHECKPOINT_INTERVAL = {"delta.checkpointInterval": "10"}


def columns_of(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Return names and types, without comments and nullability."""
    return [(field.name, field.type) for field in schema]
