"""Values of records as Arrow columns, and back; columns brought to another schema."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from include.fold.definition import KeyedFold
from include.fold.group_state import TIMERS
from include.fold.records import (
    MAX_INT,
    MIN_INT,
    Column,
    DefinitionError,
    FrozenDict,
    Items,
    Member,
    Moment,
    Nested,
    Pairs,
    Scalar,
    Shape,
    check_years,
    wrong,
)
from include.lake.columns import arrow_type

Decoder = Callable[[Any, pa.Array, str], list[Any]]


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """`column.to_pylist()`, in a tenth of the time where the values are plain numbers."""
    is_plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if column.null_count or not is_plain:
        return column.to_pylist()  # type: ignore[no-any-return]
    return column.to_numpy().tolist()  # type: ignore[no-any-return]


def encode(shape: Shape, values: Sequence[Any]) -> pa.Array:
    """Values as `shape.stored` has made them, or None, as Arrow."""
    kind = arrow_type(shape.kind)
    if isinstance(shape, Moment) and shape.is_count:
        return pa.array(values, pa.int64()).cast(kind)
    if isinstance(shape, Member):
        return pa.array([None if v is None else v.value for v in values], kind)
    if isinstance(shape, Nested):
        columns = _members(shape, values)
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=_absent(values))
    if isinstance(shape, Items):
        items = encode(shape.item, list(chain.from_iterable(v or () for v in values)))
        return pa.ListArray.from_arrays(_offsets(values), items, type=kind, mask=_absent(values))
    if isinstance(shape, Pairs):
        keys = encode(shape.key, list(chain.from_iterable(v or () for v in values)))
        of = chain.from_iterable(v.values() for v in values if v is not None)
        items = encode(shape.item, list(of))
        mask = _absent(values)
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=kind, mask=mask)
    return pa.array(values, kind)


def _members(shape: Nested, values: Sequence[Any]) -> list[pa.Array]:
    nothing = (None,) * len(shape.parts)
    columns = zip(*(nothing if v is None else v for v in values), strict=True)
    members = list(columns) or [()] * len(shape.parts)
    return [encode(part, of) for (_, part), of in zip(shape.parts, members, strict=True)]


def _absent(values: Sequence[Any]) -> pa.Array:
    return pa.array([v is None for v in values], pa.bool_())


def _offsets(values: Sequence[Any]) -> pa.Array:
    lengths = (0 if v is None else len(v) for v in values)
    return pa.array(accumulate(lengths, initial=0), pa.int32())


def decode(shape: Shape, column: pa.Array | pa.ChunkedArray, name: str) -> list[Any]:
    """The other way round. DefinitionError where a part that must not be None is not there, or
    for a value that is no member of its Enum; `name` is what it is called there."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    decoder: Decoder = _DECODERS.get(type(shape), _scalars)
    return decoder(shape, column, name)


def _scalars(shape: Shape, column: pa.Array, name: str) -> list[Any]:
    return python_values(column)


def _moments(shape: Moment, column: pa.Array, name: str) -> list[Any]:
    if shape.is_count:
        return python_values(column.cast(pa.int64()))
    naive = column.cast(pa.timestamp("us")).to_pylist()
    return [None if at is None else at.replace(tzinfo=UTC) for at in naive]


def _enum_members(shape: Member, column: pa.Array, name: str) -> list[Any]:
    known = {None: None, **{member.value: member for member in shape.members}}
    try:
        return [known[value] for value in column.to_pylist()]
    except KeyError as error:
        raise wrong(
            name,
            f"is {error}, which is no value of {shape.members.__name__}: add it there, or "
            f"declare the field {type(error.args[0]).__name__}",
        ) from None


def _records(shape: Nested, column: pa.Array, name: str) -> list[Any]:
    there = column.drop_null()
    members = zip(shape.parts, there.flatten(), strict=True)
    columns = [_part(part, of, f"{name}.{field}") for (field, part), of in members]
    make: Callable[[Any], Any] = partial(tuple.__new__, shape.record)
    return _with_none(column, list(map(make, zip(*columns, strict=True))))


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


_DECODERS: dict[type[Shape], Decoder] = {
    Moment: _moments,
    Member: _enum_members,
    Nested: _records,
    Items: _tuples,
    Pairs: _dicts,
}


def column_values(column: Column, values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a record's column."""
    if isinstance(column.shape, Scalar):
        return python_values(values)
    return decode(column.shape, values, column.name)


def plain_values(column: pa.Array) -> list[Any]:
    """Values of any type without a record: structs and maps as dicts, lists as tuples."""
    return [_plain(value, column.type) for value in column.to_pylist()]


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {name: _plain(of, kind.field(name).type) for name, of in value.items()}
    if pa.types.is_map(kind):
        return {key: _plain(of, kind.item_type) for key, of in value}
    if pa.types.is_list(kind):
        return tuple(_plain(of, kind.value_type) for of in value)
    return value


MAX_INT_OF_A_DOUBLE = 2**53  # not each integer beyond is a double
BOOLEANS = {bool, np.bool_}
# What Arrow raises; the last of what it knows, and has no type for.
NOT_OF_ONE_TYPE = (TypeError, ValueError, OverflowError, pa.ArrowNotImplementedError)


def declared(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """`values` as the field's type. Integers may stand for doubles, if they are equal.

    Raises DefinitionError, which names the field, for anything that this would change; for
    None where it is not declared, and for None among the items of an array.
    """
    if pa.types.is_timestamp(field.type):
        instants = declared(values, field.with_type(pa.int64()))
        _check_years(instants, field)
        return instants.cast(field.type)
    try:
        found = pa.array(values)
        if found.type != field.type:
            _check_type(found, field)
            found = found.cast(field.type)
    except NOT_OF_ONE_TYPE as error:
        if isinstance(error, DefinitionError):
            raise
        raise _refusal(field, _described(values, field)) from error
    _check_booleans(values, field)
    _check_none(found, field)
    return found


def _check_type(found: pa.Array, field: pa.Field) -> None:
    have, wanted = found.type, field.type
    if pa.types.is_list(have) and pa.types.is_list(wanted):
        have, wanted = have.value_type, wanted.value_type
    widened = pa.types.is_floating(wanted) and pa.types.is_integer(have)
    # Of None alone, or of empty arrays alone, which are of any type.
    if not (have == wanted or pa.types.is_null(have) or widened):
        raise _refusal(field, f"is {found.type}")


def _check_booleans(values: Sequence[Any], field: pa.Field) -> None:
    """Among doubles Arrow takes them for 0.0 and 1.0; alone it does not."""
    is_list = pa.types.is_list(field.type)
    if pa.types.is_floating(field.type.value_type if is_list else field.type):
        items = _items(values) if is_list else values
        if not BOOLEANS.isdisjoint(map(type, items)):
            raise _refusal(field, _described(values, field))


def _check_years(instants: pa.Array, field: pa.Field) -> None:
    first_and_last = pc.min_max(instants).as_py().values()
    try:
        for count in first_and_last:
            if count is not None:
                check_years(count, f"output {field.name}")
    except TypeError as error:
        raise DefinitionError(str(error), subject=field.name) from None


def _check_none(found: pa.Array, field: pa.Field) -> None:
    if found.null_count and not field.nullable:
        raise DefinitionError(
            f"output {field.name} is None, but is not declared `| None`", subject=field.name
        )
    if pa.types.is_list(field.type) and pc.list_flatten(found).null_count:
        raise _refusal(field, "has None among its items")


def _refusal(field: pa.Field, what: str) -> DefinitionError:
    return DefinitionError(
        f"output {field.name} {what}, but declared {field.type}", subject=field.name
    )


def _described(values: Sequence[Any], field: pa.Field) -> str:
    """What is wrong with values that Arrow has no one type for: slow, for a message."""
    if pa.types.is_list(field.type) and _types(values) <= {"list", "tuple"}:
        values, field = list(_items(values)), field.with_type(field.type.value_type)
    least, most = MIN_INT, MAX_INT
    if pa.types.is_floating(field.type):
        least, most = -MAX_INT_OF_A_DOUBLE, MAX_INT_OF_A_DOUBLE
    beyond = [value for value in values if type(value) is int and not least <= value <= most]
    if beyond:
        return f"has {beyond[0]}"
    types = sorted(_types(values))
    return f"is a mix of {' and '.join(types)}" if len(types) > 1 else f"is {' '.join(types)}"


def _types(values: Iterable[Any]) -> set[str]:
    return {type(value).__name__ for value in values if value is not None}


def _items(values: Sequence[Any]) -> Iterable[Any]:
    return chain.from_iterable(value for value in values if value is not None)


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
            conformed(part, of, cast)
            for part, of in zip(_pairs(column), (kind.key_type, kind.item_type), strict=True)
        )
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=absent)
    items = conformed(_conformed_items(column), kind.value_type, cast)
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


def _conformed_items(column: pa.Array) -> pa.Array:
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


def kept_without_timeout(rows: pa.Table) -> int:
    """How many states in rows of `state_schema` have none, nor a timer. (A key may have no state.)"""
    kept = pc.and_(rows["timeout_at_us"].is_null(), rows["state"].is_valid())
    if TIMERS in rows.column_names:
        kept = pc.and_(kept, rows[TIMERS].is_null())
    return int(pc.sum(kept, min_count=0).as_py())


def state_array(
    fold: KeyedFold, states: tuple[Any, ...], absent: Any, kind: pa.StructType
) -> pa.Array:
    """The column `state` of some keys; `absent`: which of them have none."""
    mask = None
    if absent.any():
        nothing = (None,) * kind.num_fields
        states = tuple(nothing if state is None else state for state in states)
        mask = pa.array(absent)
    columns = zip(fold.state_columns, zip(*states, strict=True), strict=True)
    arrays = [encode(column.shape, values) for column, values in columns]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)


def records_of(fold: KeyedFold, states: pa.StructArray) -> list[Any]:
    """The state of each row, as the stream's own record; None for none."""
    columns = [column_values(c, pc.struct_field(states, c.name)) for c in fold.state_columns]
    make = partial(tuple.__new__, fold.state)
    records = list(map(make, zip(*columns, strict=True)))
    if states.null_count:
        is_there = states.is_valid().to_pylist()
        return [r if there else None for r, there in zip(records, is_there, strict=True)]
    return records


def wake_us(fold: KeyedFold, rows: pa.Table) -> pa.ChunkedArray:
    """When something happens to each key without an event: its timeout or its end; null for never."""
    wakes_us = [rows["timeout_at_us"]]
    if fold.ttl_us is not None:
        wakes_us.append(pc.add(rows["changed_at_us"], fold.ttl_us))
    wakes_us += [pc.struct_field(rows[TIMERS], name) for name in fold.timers]
    return pc.min_element_wise(*wakes_us) if wakes_us[1:] else wakes_us[0]
