"""The rows that a fold emits: whether they are what its output declares, and as Arrow.

An update stream's row is what `project` makes of a key's state.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.arrow_values import encode
from include.fold.definition import Emitted, Key, KeyedFold
from include.fold.failures import function_name
from include.fold.records import (
    NO_RECORDS,
    Column,
    DefinitionError,
    Items,
    Scalar,
    Shape,
    check_years,
    is_plainly,
)
from include.fold.states import output_schema

# Every whole number up to here is a double; of those beyond, Arrow takes none for one.
MAX_WHOLE_DOUBLE = 2**53
WRONG_VALUE = (TypeError, ValueError, OverflowError)


def project(fold: KeyedFold, key: Key, state: Any) -> Any:
    """The row of an update stream's table for a key; without state, only the key is filled."""
    assert fold.project is not None  # or it is no update stream
    if state is not None:
        return fold.project(key, state)
    known = fold.keys.values(key)
    return tuple(known.get(column.name) for column in fold.output_columns)


def checked_projection(fold: KeyedFold, key: Key, state: Any, returned: Any) -> Any:
    """The projection of `state`, which the row that a call yielded last (or None) must be."""
    row = project(fold, key, state)
    if returned is not None and state is not None and not _is_same(returned, row):
        raise DefinitionError(
            f"it returned {returned!r}, but project() makes {row!r} of its state", subject="project"
        )
    return row


def _is_same(one: Any, other: Any) -> bool:
    """Whether both are stored alike: Python says of a NaN that it is not even itself, but writes it so."""
    return one == other or repr([*one]) == repr([*other])


def checked_output(fold: KeyedFold, row: Iterable[Any]) -> tuple[Any, ...]:
    """A row as it is stored; TypeError, ValueError or OverflowError for one that cannot be.

    Where the first failure stops the stream, `outputs_table` says the same of all rows at once.
    """
    if not isinstance(row, tuple) and isinstance(row, NO_RECORDS):
        raise _no_row(fold, row)
    try:
        values = zip(fold.usual_outputs, row, strict=True)
        return tuple(
            value if is_plainly(value, plain) else _stored(column, value)
            for (plain, column), value in values
        )
    except (TypeError, ValueError) as error:
        if _is_row(fold, row):
            raise
        raise _no_row(fold, row) from error


def outputs_table(fold: KeyedFold, emitted: Emitted) -> pa.Table:
    """What was emitted, as Arrow.

    Raises DefinitionError for a value of another type than the output's field declares.
    """
    if not emitted.rows:
        return output_schema(fold).empty_table()
    arrays = _record_arrays(fold, emitted.rows)
    arrays.append(pa.array(emitted.emitted_at_us, pa.int64()))
    if fold.output_mode == "update":
        arrays.append(pa.array(emitted.removed, pa.bool_()))
    return pa.table(arrays, schema=output_schema(fold))


def _record_arrays(fold: KeyedFold, rows: Sequence[Any]) -> list[pa.Array]:
    if any(issubclass(kind, NO_RECORDS) for kind in set(map(type, rows))):
        raise _no_row(fold, next(row for row in rows if isinstance(row, NO_RECORDS)))
    try:
        columns = zip(fold.output_columns, zip(*rows, strict=True), strict=True)
        return [_array(column, values) for column, values in columns]
    except (TypeError, ValueError) as error:
        for row in rows:
            if not _is_row(fold, row):
                raise _no_row(fold, row) from error
        raise


def _is_row(fold: KeyedFold, row: Any) -> bool:
    """Whether it has, as far as it tells, as many values as the output has fields."""
    if not hasattr(row, "__len__"):
        return hasattr(row, "__iter__")
    return len(row) == len(fold.output_columns)


def _no_row(fold: KeyedFold, row: Any) -> DefinitionError:
    names = ", ".join(column.name for column in fold.output_columns)
    name = function_name(fold)
    return DefinitionError(
        f"{name} yielded {row!r}, but a row of its output has {names}", subject=name
    )


def _array(column: Column, values: Sequence[Any]) -> pa.Array:
    if column.is_plain and _are_usual(column.shape, values, column.nullable):
        with suppress(*WRONG_VALUE):  # the same below says which value it is
            array = encode(column.shape, values)
            if column.kind == "timestamp":
                for first_or_last in pc.min_max(array.cast(pa.int64())).as_py().values():
                    check_years(first_or_last or 0, column.name)
            return array
    try:
        return encode(column.shape, [_stored(column, value) for value in values])
    except (TypeError, ValueError) as error:
        raise DefinitionError(str(error), subject=column.name) from error


def _are_usual(shape: Shape, values: Iterable[Any], nullable: bool) -> bool:
    """Whether each is of the very type that is declared, so that Arrow need not be told of it."""
    types = set(map(type, values))
    if nullable and type(None) in types:
        types.discard(type(None))
        values = [value for value in values if value is not None]
    if isinstance(shape, Items):
        items = chain.from_iterable(values)
        return types <= {tuple, list} and _are_usual(shape.item, items, nullable=False)
    return isinstance(shape, Scalar) and types <= {shape.plain}


def _stored(column: Column, value: Any) -> Any:
    return column.shape.stored(_as_declared(column.shape, value), f"output {column.name}")


def _as_declared(shape: Shape, value: Any) -> Any:
    """What a value of another library stands for, or of a type that is made of the declared one, and
    a whole number for a double; others as they are."""
    if hasattr(value, "tolist"):  # numpy's
        value = value.tolist()
    if isinstance(shape, Items) and isinstance(value, (list, tuple, set)):
        return tuple(_as_declared(shape.item, item) for item in value)
    if not isinstance(shape, Scalar) or isinstance(value, bool):
        return value
    if shape.plain is str and isinstance(value, str):
        return str.__str__(value)
    is_whole = isinstance(value, int)
    if shape.plain is float and is_whole and abs(value) > MAX_WHOLE_DOUBLE:
        return value
    is_number = is_whole or (isinstance(value, float) and shape.plain is float)
    return shape.plain(value) if is_number and shape.plain in (int, float) else value
