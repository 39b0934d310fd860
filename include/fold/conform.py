"""Columns as another schema has them: structs by their members' names, numbers only if wider."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Cast = Callable[[Any, pa.DataType], Any]


def conformed_table(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of `schema` out of `rows`; ArrowInvalid for a value that its type cannot hold."""
    if rows.schema == schema:
        return rows
    columns = [conformed(rows[field.name], field.type) for field in schema]
    return pa.table(columns, schema=schema)


def conformed(
    column: pa.Array | pa.ChunkedArray, kind: pa.DataType, cast: Cast = pc.cast
) -> pa.Array | pa.ChunkedArray:
    """One column of it. A member that the values do not have is null. `cast`: of what is not nested."""
    if column.type == kind:
        return column
    if not pa.types.is_nested(kind):
        return cast(column, kind)
    if isinstance(column, pa.ChunkedArray):
        chunks = [conformed(chunk, kind, cast) for chunk in column.chunks]
        return pa.chunked_array(chunks, kind)
    if pa.types.is_struct(kind):
        return _struct(column, kind, cast)
    lengths = pc.fill_null(pc.list_value_length(_as_list(column)), 0).to_numpy()
    offsets = pa.array(np.append(0, lengths.cumsum()), pa.int32())
    absent = column.is_null()
    if pa.types.is_map(kind):
        keys, items = (
            conformed(part, of, cast) for part, of in zip(_pairs(column), _of(kind), strict=True)
        )
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=absent)
    items = conformed(_items(column), kind.value_type, cast)
    return pa.ListArray.from_arrays(offsets, items, type=kind, mask=absent)


def _struct(column: pa.StructArray, kind: pa.StructType, cast: Cast) -> pa.StructArray:
    found = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
    members = [
        conformed(found[field.name], field.type, cast)
        if field.name in found
        else pa.nulls(len(column), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=column.is_null())


def _as_list(column: pa.Array) -> pa.Array:
    if not pa.types.is_map(column.type):
        return column
    offsets = column.offsets
    lengths = pa.ListArray.from_arrays(
        offsets, pa.nulls(offsets[-1].as_py() if len(offsets) else 0)
    )
    return pc.if_else(column.is_valid(), lengths, pa.scalar(None, lengths.type))


def _items(column: pa.Array) -> pa.Array:
    """Of a map, its pairs."""
    if pa.types.is_map(column.type):
        return pa.StructArray.from_arrays(_pairs(column), names=["key", "value"])
    return column.flatten()


def _pairs(column: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    there = column.drop_null()
    if not len(there):
        return column.keys[:0], column.items[:0]
    first, last = there.offsets[0].as_py(), there.offsets[-1].as_py()
    return there.keys[first:last], there.items[first:last]


def _of(kind: pa.MapType) -> tuple[pa.DataType, pa.DataType]:
    return kind.key_type, kind.item_type
