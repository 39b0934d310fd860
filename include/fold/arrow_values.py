"""The rows of a fold as Arrow, and back: schemas, values of records, and outputs, which are checked on the way."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache, partial
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.definition import (
    DEAD_LETTERS_DDL,
    Emitted,
    Key,
    KeyedFold,
    event_ddl,
    output_ddl,
    state_ddl,
)
from include.fold.failures import function_name
from include.fold.records import (
    Column,
    DefinitionError,
    FrozenDict,
    Items,
    Nested,
    Pairs,
    Scalar,
    Shape,
    check_years,
    is_plainly,
    wrong,
)
from include.lake.columns import arrow_type


@lru_cache
def schema_of(ddl: str) -> pa.Schema:
    """Return the Arrow schema of columns in Spark DDL."""
    return pa.schema(list(arrow_type(f"struct<{ddl}>")))


def event_schema(fold: KeyedFold) -> pa.Schema:
    """Return the schema of events that travel or wait: the record's columns, the fold's time, a computed key."""
    return schema_of(event_ddl(fold))


def state_schema(fold: KeyedFold) -> pa.Schema:
    """Return the schema of states, a row per key."""
    return schema_of(state_ddl(fold))


def output_schema(fold: KeyedFold) -> pa.Schema:
    """Return the schema of outputs: the record's columns, when it was emitted, and (update) if it is removed."""
    return schema_of(output_ddl(fold))


DEAD_LETTERS = schema_of(DEAD_LETTERS_DDL)


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return `column.to_pylist()`, in a tenth of the time where the values are plain numbers."""
    is_plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if column.null_count or not is_plain:
        return column.to_pylist()  # type: ignore[no-any-return]
    return column.to_numpy().tolist()  # type: ignore[no-any-return]


def encode(shape: Shape, values: Sequence[Any]) -> pa.Array:
    """Return values that `shape.stored` has made, or None, as Arrow."""
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
    """Return the values of an Arrow column; DefinitionError for a missing part, or for no member of an Enum."""
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
    """Return the positions at which each list's items begin and end among all of them."""
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
    """Return the values of a record's column."""
    return decode(column.shape, values, column.name)


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as dicts of plain values; maps as dicts."""
    return rows.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]


WRONG_VALUE = (TypeError, ValueError, OverflowError)


def project(fold: KeyedFold, key: Key, state: Any) -> Any:
    """Return the row of an update stream's table for a key; without a state only the key is filled."""
    assert fold.project is not None  # or it is no update stream
    if state is not None:
        return fold.project(key, state)
    known = fold.keys.values(key)
    return tuple(known.get(column.name) for column in fold.output_columns)


def checked_projection(fold: KeyedFold, key: Key, state: Any, returned: Any) -> Any:
    """Return the projection of `state`; DefinitionError when a call has `returned` another row."""
    row = project(fold, key, state)
    if returned is not None and state is not None and not _is_same(returned, row):
        raise DefinitionError(
            f"it returned {returned!r}, but project() makes {row!r} of its state", subject="project"
        )
    return row


def _is_same(one: Any, other: Any) -> bool:
    """True if both are stored alike, NaN too."""
    return one == other or repr([*one]) == repr([*other])


def checked_output(fold: KeyedFold, row: Any) -> tuple[Any, ...]:
    """Return a row as it is stored; it refuses what `outputs_table` refuses of all rows at once."""
    columns = fold.usual_outputs
    if not isinstance(row, tuple) or len(row) != len(columns):
        raise _no_row(fold, row)
    return tuple(
        [
            value
            if is_plainly(value, plain)
            else column.shape.stored(value, f"output {column.name}")
            for (plain, column), value in zip(columns, row, strict=True)
        ]
    )


def outputs_table(fold: KeyedFold, emitted: Emitted) -> pa.Table:
    """Return the emitted rows as Arrow; DefinitionError for a value of another type than is declared."""
    if not emitted.rows:
        return output_schema(fold).empty_table()
    arrays = _record_arrays(fold, emitted.rows)
    arrays.append(pa.array(emitted.emitted_at_us, pa.int64()))
    if fold.output_mode == "update":
        arrays.append(pa.array(emitted.removed, pa.bool_()))
    return pa.table(arrays, schema=output_schema(fold))


def _record_arrays(fold: KeyedFold, rows: Sequence[Any]) -> list[pa.Array]:
    for row in rows:
        if not isinstance(row, tuple) or len(row) != len(fold.output_columns):
            raise _no_row(fold, row)
    columns = zip(fold.output_columns, zip(*rows, strict=True), strict=True)
    return [_array(column, values) for column, values in columns]


def _no_row(fold: KeyedFold, row: Any) -> DefinitionError:
    names = ", ".join(column.name for column in fold.output_columns)
    return wrong(function_name(fold), f"yielded {row!r}, but a row of its output has {names}")


def _array(column: Column, values: Sequence[Any]) -> pa.Array:
    if column.is_plain and _are_usual(column.shape, values, column.nullable):
        with suppress(*WRONG_VALUE):  # the same below says which value it is
            array = encode(column.shape, values)
            if column.kind == "timestamp":
                for first_or_last in pc.min_max(array.cast(pa.int64())).as_py().values():
                    check_years(first_or_last or 0, column.name)
            return array
    try:
        stored = [column.shape.stored(value, f"output {column.name}") for value in values]
    except (TypeError, ValueError) as error:
        raise DefinitionError(str(error), subject=column.name) from error
    return encode(column.shape, stored)


def _are_usual(shape: Shape, values: Iterable[Any], nullable: bool) -> bool:
    """True if each value is exactly of the type that is declared."""
    types = set(map(type, values))
    if nullable and type(None) in types:
        types.discard(type(None))
        values = [value for value in values if value is not None]
    if isinstance(shape, Items):
        items = chain.from_iterable(values)
        return types <= {tuple} and _are_usual(shape.item, items, nullable=False)
    return isinstance(shape, Scalar) and types <= {shape.plain}
