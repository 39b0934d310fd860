"""States in Arrow, as they are stored, and as the stream's own records."""

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.arrow_values import column_values, encode
from include.fold.definition import KeyedFold
from include.fold.timers import TIMERS


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
