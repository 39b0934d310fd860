"""Keys as small integers, as Spark hashes them, and the numbers of their buckets."""

from collections import Counter
from decimal import Decimal
from functools import lru_cache, reduce
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_intdigest

SPARK_SEED = 42
UINT32 = 2**32 - 1


def codes_of(keys: pa.Array | pa.ChunkedArray) -> tuple[Any, pa.Array]:
    """Return each key as an integer from 0, and the distinct keys by these integers."""
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
    """Return the position of each of `keys` (distinct ones) among the `stored`; -1 for none."""
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
    parts = [p.combine_chunks() if isinstance(p, pa.ChunkedArray) else p for p in (keys, stored)]
    codes, _ = codes_of(pa.concat_arrays(parts))
    return pa.array(codes[: len(keys)]), pa.array(codes[len(keys) :])


LONG_DIGITS = 18  # of a decimal that Spark keeps in 64 bits


def hashes_of(keys: pa.Array | pa.ChunkedArray) -> Any:
    """Return the hash of each key, as Spark's xxhash64 gives it: a signed integer. Each distinct key once."""
    codes, distinct = codes_of(keys)
    parts = distinct.flatten() if pa.types.is_struct(distinct.type) else [distinct]
    rows = zip(*map(_bytes_of, parts), strict=True)
    hashes = [int.from_bytes(_hash(row).to_bytes(8), signed=True) for row in rows]
    return np.array(hashes, np.int64)[codes]


def buckets_of(keys: pa.Array | pa.ChunkedArray, ids: Any) -> Any:
    """Return the bucket of each key, one of `ids`, as Spark computes it by `bucket_of`."""
    return np.array(ids, np.int32)[hashes_of(keys) % len(ids)]


def _hash(parts: tuple[bytes | None, ...]) -> int:
    """Hash the parts of a key: each seeds the next, and nulls are passed over."""
    return reduce(
        lambda seed, part: seed if part is None else xxh64_intdigest(part, seed), parts, SPARK_SEED
    )


def _bytes_of(column: pa.Array) -> list[bytes | None]:
    """Return the bytes that Spark hashes of each value."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return [None if v is None else _decimal_bytes(v, kind) for v in column.to_pylist()]
    if pa.types.is_string(kind):
        return [None if v is None else v.encode() for v in column.to_pylist()]
    if pa.types.is_binary(kind):
        return column.to_pylist()  # type: ignore[no-any-return]
    is_short = pa.types.is_boolean(kind) or kind.bit_width <= 32
    width, whole = (4, pa.int32()) if is_short else (8, pa.int64())
    values = column.cast(whole).to_pylist()
    return [None if v is None else v.to_bytes(width, "little", signed=True) for v in values]


def _decimal_bytes(value: Decimal, kind: pa.Decimal128Type) -> bytes:
    sign, digits, _ = value.as_tuple()  # all of the declared ones, as Arrow has them
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    if kind.precision <= LONG_DIGITS:
        return unscaled.to_bytes(8, "little", signed=True)
    # Java's BigInteger.toByteArray: as few bytes as hold the number and its sign.
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


@lru_cache
def bucket_ids(buckets: int, partitions: int) -> tuple[int, ...]:
    """Return the `buckets` smallest numbers of which no partition gets more than its share.

    Stored states depend on them: they must never change.
    """
    share = -(-buckets // partitions)
    used: Counter[int] = Counter()
    ids: list[int] = []
    for number in count():
        partition = murmur3(number) % partitions
        if used[partition] < share:
            used[partition] += 1
            ids.append(number)
        if len(ids) == buckets:
            break
    return tuple(ids)


def murmur3(number: int) -> int:
    """Return Spark's hash of an int: 32-bit murmur3 of its four bytes, as a signed number."""
    block = _rotate(number * 0xCC9E2D51 & UINT32, 15) * 0x1B873593 & UINT32
    mixed = _rotate(SPARK_SEED ^ block, 13) * 5 + 0xE6546B64 & UINT32
    mixed ^= 4  # the length in bytes
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & UINT32
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & UINT32
    mixed ^= mixed >> 16
    return mixed - 2**32 if mixed >> 31 else mixed


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & UINT32
