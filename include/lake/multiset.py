"""Rows with weights, as multisets: a row of weight 1 is there once more, one of weight -1 once less."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from include.lake.errors import LakeError

WEIGHT = "weight"
# In the metadata of bronze's own column: a field of a source may be called `weight`, too.
IS_WEIGHT = "stateful.weight"
INDEX = "index"
INTEGERS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def net(rows: pa.Table, weight: str = WEIGHT, names: Sequence[str] | None = None) -> pa.Table:
    """Return rows without the column `weight`, and without those that are taken back.

    Rows are equal that are so in the columns `names`; None: in all. LakeError where one was taken back that
    is not there.
    """
    weights = rows[weight].to_numpy()
    rows = rows.drop_columns(weight)
    if (weights > 0).all():
        return rows
    indices, sums = _sums(rows.select(names or rows.column_names), weights)
    if (sums < 0).any():
        raise LakeError("bronze takes rows back that it has not", code="changed_by_others")
    return rows.take(np.repeat(indices, sums))


def difference(new: pa.Table, old: pa.Table, weights: pa.ChunkedArray) -> pa.Table:
    """Return the rows, with their weights, that make `new` of `old`, whose rows have `weights`."""
    rows = pa.concat_tables([new, old.select(new.column_names)])
    signed = np.concatenate([np.ones(new.num_rows, np.int64), -weights.to_numpy()])
    indices, sums = _sums(rows, signed)
    found = rows.take(np.repeat(indices, np.abs(sums)))
    signs = np.repeat(np.sign(sums), np.abs(sums))
    return found.append_column(WEIGHT, pa.array(signs, pa.int32()))


def _sums(rows: pa.Table, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where each distinct row is first, and the sum of its weights, but where that is 0."""
    keys = [_comparable(column) for column in rows.columns]
    names = [str(number) for number in range(len(keys))]
    numbered = pa.table(
        [*keys, pa.array(weights, pa.int64()), np.arange(rows.num_rows)], [*names, WEIGHT, INDEX]
    )
    grouped = numbered.group_by(names).aggregate([(WEIGHT, "sum"), (INDEX, "min")])
    sums = grouped[f"{WEIGHT}_sum"].to_numpy()
    is_there = sums != 0
    return grouped[f"{INDEX}_min"].to_numpy()[is_there], sums[is_there]


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column whose values are equal where those of `column` are the same, bit by bit."""
    if (bits := INTEGERS.get(column.type)) is not None:
        return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)
    if pa.types.is_nested(column.type):
        return pa.chunked_array([pa.array(map(repr, column.to_pylist()), pa.string())])
    return column


def has_weights(table: DeltaTable) -> bool:
    """True of the bronze of a source whose rows may be taken back."""
    return any(
        field.name == WEIGHT and IS_WEIGHT in field.metadata for field in table.schema().fields
    )
