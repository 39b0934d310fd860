"""Values of records as Arrow columns, and back."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.definition import KeyedFold
from include.fold.group_state import TIMERS
from include.fold.records import Column, FrozenDict, Items, Nested, Pairs, Scalar, Shape, wrong
from include.lake.columns import arrow_type


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """`column.to_pylist()`, in a tenth of the time where the values are plain numbers."""
    is_plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if column.null_count or not is_plain:
        return column.to_pylist()  # type: ignore[no-any-return]
    return column.to_numpy().tolist()  # type: ignore[no-any-return]


def encode(shape: Shape, values: Sequence[Any]) -> pa.Array:
    """Values as `shape.stored` has made them, or None, as Arrow."""
    kind = arrow_type(shape.kind)
    try:
        return pa.array(values, kind)
    except pa.ArrowException:  # it knows no Enum
        return pa.array(list(map(_without_members, values)), kind)


def _without_members(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: _without_members(of) for key, of in value.items()}
    return tuple(map(_without_members, value)) if isinstance(value, tuple) else value


def decode(shape: Shape, column: pa.Array | pa.ChunkedArray, name: str) -> list[Any]:
    """The other way round; DefinitionError for a missing part, and for no member of an Enum."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(shape, Nested):
        return _records(shape, column, name)
    if isinstance(shape, Items):
        return _tuples(shape, column, name)
    if isinstance(shape, Pairs):
        return _dicts(shape, column, name)
    assert isinstance(shape, Scalar)
    if shape.is_instant:
        return python_values(column.cast(pa.int64()))
    if shape.plain is datetime:
        naive = column.cast(pa.timestamp("us")).to_pylist()
        return [None if at is None else at.replace(tzinfo=UTC) for at in naive]
    if issubclass(shape.plain, Enum):
        return _enum_members(shape.plain, column, name)
    return python_values(column)


def _enum_members(members: type[Enum], column: pa.Array, name: str) -> list[Any]:
    known = {None: None, **{member.value: member for member in members}}
    try:
        return [known[value] for value in column.to_pylist()]
    except KeyError as error:
        raise wrong(name, f"is {error}, which is no value of {members.__name__}") from None


def _records(shape: Nested, column: pa.Array, name: str) -> list[Any]:
    there = column.drop_null()
    members = zip(shape.parts, there.flatten(), strict=True)
    columns = [_part(part, of, f"{name}.{field}") for (field, part), of in members]
    make: Callable[[Any], Any] = partial(tuple.__new__, shape.record)
    records = list(map(make, zip(*columns, strict=True)))
    return _with_none(column, records) if column.null_count else records


def _tuples(shape: Items, column: pa.Array, name: str) -> list[Any]:
    there = column.drop_null()
    items = _part(shape.item, there.flatten(), f"{name}[]")
    return _with_none(column, [tuple(items[a:b]) for a, b in _bounds(there)])


def _dicts(shape: Pairs, column: pa.Array, name: str) -> list[Any]:
    there = column.drop_null()
    first, last = (there.offsets[0].as_py(), there.offsets[-1].as_py()) if len(there) else (0, 0)
    keys = _part(shape.key, there.keys[first:last], f"{name}'s key")
    items = _part(shape.item, there.items[first:last], f"{name}[]")
    pairs = [sorted(zip(keys[a:b], items[a:b], strict=True), key=_key) for a, b in _bounds(there)]
    return _with_none(column, list(map(FrozenDict, pairs)))


def _key(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _bounds(lists: pa.Array) -> list[tuple[int, int]]:
    """Where each list's items begin and end among all of them."""
    offsets = lists.offsets.to_numpy()
    return list(pairwise((offsets - offsets[0]).tolist())) if len(lists) else []


def _part(shape: Shape, column: pa.Array, name: str) -> list[Any]:
    if column.null_count and not shape.nullable:
        raise wrong(name, "is not there in some row: declare it `| None`")
    return decode(shape, column, name)


def _with_none(column: pa.Array, there: list[Any]) -> list[Any]:
    if not column.null_count:
        return there
    values = iter(there)
    return [next(values) if is_there else None for is_there in column.is_valid().to_pylist()]


def column_values(column: Column, values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a record's column."""
    return decode(column.shape, values, column.name)


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows by their columns' names, of plain values; maps as dicts."""
    return rows.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]


def wake_us(fold: KeyedFold, rows: pa.Table) -> pa.ChunkedArray:
    """The instant at which each key times out, has a timer or ends; null for never."""
    wakes_us = [rows["timeout_at_us"]]
    if fold.ttl_us is not None:
        wakes_us.append(pc.add(rows["changed_at_us"], fold.ttl_us))
    wakes_us += [pc.struct_field(rows[TIMERS], name) for name in fold.timers]
    return pc.min_element_wise(*wakes_us) if wakes_us[1:] else wakes_us[0]
