"""Keys as small integers: to sort and look them up by, whatever they are made of."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def codes_of(keys: pa.Array | pa.ChunkedArray) -> tuple[Any, pa.Array]:
    """Each key as an integer from 0, and the distinct keys that the integers stand for."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if pa.types.is_struct(keys.type):
        return _codes_of_parts(keys)
    encoded = keys.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(), encoded.dictionary


def _codes_of_parts(keys: pa.StructArray) -> tuple[Any, pa.StructArray]:
    codes = np.zeros(len(keys), np.int64)
    for part in keys.flatten():
        of_part, distinct = codes_of(part)
        # Small again each time, or the product of many parts would outgrow 64 bits.
        together = codes * (len(distinct) + 1) + of_part
        _, first, codes = np.unique(together, return_index=True, return_inverse=True)
    return codes, keys.take(pa.array(first))


def positions_of(keys: pa.Array | pa.ChunkedArray, stored: pa.ChunkedArray) -> Any:
    """Where each of `keys`, which are distinct, is stored; -1 for nowhere."""
    if pa.types.is_struct(stored.type):
        keys, stored = _as_codes(keys, stored)
    # The asked keys are hashed, and the stored ones looked up: they are fewer.
    asked = pc.index_in(stored, value_set=keys)
    positions = np.full(len(keys), -1)
    positions[np.asarray(asked.drop_null())] = np.flatnonzero(np.asarray(asked.is_valid()))
    return positions


def _as_codes(
    keys: pa.Array | pa.ChunkedArray, stored: pa.ChunkedArray
) -> tuple[pa.Array, pa.Array]:
    parts = [
        part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part
        for part in (keys, stored)
    ]
    codes, _ = codes_of(pa.concat_arrays(parts))
    return pa.array(codes[: len(keys)]), pa.array(codes[len(keys) :])
