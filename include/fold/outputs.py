"""The rows that a fold emits, held against what its output declares, and as Arrow."""

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
    Column,
    DefinitionError,
    Items,
    Scalar,
    Shape,
    check_years,
    is_plainly,
    wrong,
)
from include.fold.states import output_schema

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
    """True if both are stored alike, NaN too."""
    return one == other or repr([*one]) == repr([*other])


def checked_output(fold: KeyedFold, row: Any) -> tuple[Any, ...]:
    """A row as it is stored; `outputs_table` refuses the same, of all rows at once."""
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
    """The emitted rows as Arrow; DefinitionError for a value of another type than is declared."""
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
    """True if each is of the very type that is declared."""
    types = set(map(type, values))
    if nullable and type(None) in types:
        types.discard(type(None))
        values = [value for value in values if value is not None]
    if isinstance(shape, Items):
        items = chain.from_iterable(values)
        return types <= {tuple} and _are_usual(shape.item, items, nullable=False)
    return isinstance(shape, Scalar) and types <= {shape.plain}
