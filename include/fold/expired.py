"""Values that a key has seen, in the rows of states: which of them no event can repeat any more.

By Arrow, for all keys of a bucket at once: it costs little beside writing the bucket, and so no key
has to be woken, and none keeps what is over because it never comes again.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from include.fold.admission import NEVER_US
from include.fold.deduplicate import SEEN, SeenValues
from include.fold.definition import KeyedFold


def without_expired(fold: KeyedFold, seen: SeenValues, rows: pa.Table, until_us: int) -> pa.Table:
    """Rows of `state_schema(fold)` without values that are over for events from `until_us` on.

    A key that has nothing else is left out.
    """
    lists = rows[SEEN].combine_chunks()
    at_us = _instants(lists)
    over = pc.less(at_us, until_us - seen.within_us)
    if not pc.any(over).as_py():
        return rows
    kept = _filtered(lists, ~np.asarray(over))
    rows = rows.set_column(rows.schema.get_field_index(SEEN), rows.schema.field(SEEN), kept)
    holding = ["state", "timeout_at_us", *(column.name for column in fold.beside)]
    is_there = np.logical_or.reduce([np.asarray(rows[name].is_valid()) for name in holding])
    return rows if is_there.all() else rows.filter(pa.array(is_there)).combine_chunks()


def first_expiry_us(seen: SeenValues, rows: pa.Table) -> int:
    """When the first of the values is over, as a timeout of that instant fires; NEVER_US for none."""
    first_us = pc.min(_instants(rows[SEEN].combine_chunks())).as_py()
    return NEVER_US if first_us is None else int(first_us) + seen.within_us


def _instants(lists: pa.ListArray) -> pa.Array:
    return pc.struct_field(lists.flatten(), "at_us")


def _filtered(lists: pa.ListArray, keep: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> pa.Array:
    """The lists with those of their items; null where none is left."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    ends = np.append(0, np.append(0, keep.cumsum())[lengths.cumsum()])
    items = lists.flatten().filter(pa.array(keep))
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), items, type=lists.type, mask=pa.array(np.diff(ends) == 0)
    )
