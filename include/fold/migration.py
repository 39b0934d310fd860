"""States of an older schema as states of the fold's, by the stream's own `migrate_state`.

All else of a key stays: timers by their names, and values seen where `by` is the same.
"""

from decimal import localcontext
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.arrow_values import decode, encode
from include.fold.definition import Key, KeyedFold, MigrateState
from include.fold.failures import ARITHMETIC
from include.fold.group_state import TIMERS
from include.fold.records import Scalar
from include.fold.states import state_schema, with_something


class MigrationError(RuntimeError):
    """`migrate_state` failed for a key, or made of its state what the schema does not take."""


def migrated(batch: pa.RecordBatch, fold: KeyedFold, migrate: MigrateState) -> pa.Table:
    """A savepoint's rows, whose states are of any schema, as rows of `state_schema(fold)`."""
    schema = state_schema(fold)
    keys = batch["key"].cast(schema.field("key").type)
    each = zip(decode(fold.keys.shape, keys, "key"), _old_states(batch["state"], fold), strict=True)
    new = [None if old is None else _new_state(key, old, fold, migrate) for key, old in each]
    never = pa.nulls(batch.num_rows, pa.int64())
    timeouts_us = batch["timeout_at_us"] if fold.times_out else never
    columns = [keys, encode(fold.state_shape, new), batch["changed_at_us"], timeouts_us]
    extra = [_retained(batch, schema.field(column.name)) for column in fold.extra]
    return with_something(fold, pa.table([*columns, *extra], schema=schema))


def _old_states(states: pa.StructArray, fold: KeyedFold) -> list[dict[str, Any] | None]:
    """Plain values by name, but microseconds where the fold's own field is an Instant."""
    shapes = ((column.name, column.shape) for column in fold.state_columns)
    counts = {name for name, shape in shapes if isinstance(shape, Scalar) and shape.is_instant}
    columns = [
        column.cast(pa.int64())
        if field.name in counts and pa.types.is_timestamp(field.type)
        else column
        for field, column in zip(states.type, states.flatten(), strict=True)
    ]
    names = [field.name for field in states.type]
    plain = pa.StructArray.from_arrays(columns, names, mask=states.is_null())
    return list(map(_with_tuples, plain.to_pylist(maps_as_pydicts="lossy")))


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_tuples(of) for key, of in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _new_state(key: Key, old: dict[str, Any], fold: KeyedFold, migrate: MigrateState) -> Any:
    try:
        with localcontext(ARITHMETIC):
            new = migrate(old)
        if not isinstance(new, fold.state):
            raise TypeError(f"it returned {new!r}, and not a {fold.state.__name__}")
        return fold.stored(new)
    except Exception as error:  # anything: it is the user's code, and only the key is ours to add
        said = f"migrate_state, for key {key!r}: {type(error).__name__}: {error}"
        raise MigrationError(said) from error


def _retained(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """The column of what keys have beside their states, where it is of the same kind as now."""
    nothing = pa.nulls(batch.num_rows, field.type)
    stored = batch[field.name] if field.name in batch.schema.names else nothing
    if field.name == TIMERS:
        stored = _by_name(stored, field.type)
    return stored if stored.type == field.type else nothing


def _by_name(timers: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    """The timers that are declared now, those of them that were before as they are set."""
    before = dict(zip((field.name for field in timers.type), timers.flatten(), strict=True))
    columns = [before.get(field.name, pa.nulls(len(timers), field.type)) for field in wanted]
    is_none_set = reduce(pc.and_, [pc.is_null(column) for column in columns])
    return pa.StructArray.from_arrays(columns, fields=[*wanted], mask=is_none_set)
