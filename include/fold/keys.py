"""What groups a fold's events: a field of theirs, several, or a function of an event."""

from collections import Counter, namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache, reduce
from itertools import count
from operator import attrgetter, itemgetter
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_intdigest

from include.fold.records import (
    Column,
    DefinitionError,
    Nested,
    Scalar,
    Shape,
    SqlType,
    UnknownTypeError,
    shape_of,
    sql_type,
)
from include.text_table import did_you_mean

GivenKey = str | tuple[str, ...] | Callable[[Any], Any]


@dataclass(frozen=True)
class FoldKey:
    """The key of each event. `shape` is that of its values, `names` the columns it has in outputs.

    A key of several columns is a NamedTuple of theirs.
    """

    names: tuple[str, ...]
    shape: Shape
    of: Callable[[Any], Any]  # an event
    is_derived: bool  # by a function of the event: it is no field of it

    @property
    def kind(self) -> str:
        """Its SQL type."""
        return self.shape.kind

    @property
    def parts(self) -> tuple[tuple[str, Shape], ...]:
        """Its columns, by name."""
        if isinstance(self.shape, Nested):
            return self.shape.parts
        return ((self.names[0], self.shape),)

    def values(self, key: Any) -> dict[str, Any]:
        """The columns of one key."""
        return dict(zip(self.names, key if isinstance(self.shape, Nested) else (key,), strict=True))

    def text(self) -> str:
        """For people: `user_id`, `country, customer_id`."""
        return ", ".join(self.names)


def fold_key(given: GivenKey, event: Any, columns: Sequence[Column]) -> FoldKey:
    """The key that a stream's file declares. DefinitionError for one that cannot group."""
    if callable(given):
        return _derived(given)
    known = {column.name: column for column in columns}
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:
        raise DefinitionError("key=() names no field", subject="key")
    for name in names:
        if name not in known:
            raise DefinitionError(
                f"key {name!r} is not a field of {event.__name__}, which has {', '.join(known)}"
                f"{did_you_mean(name, known)}",
                subject=name,
            )
    parts = tuple((name, _groupable(name, known[name].shape)) for name in names)
    if isinstance(given, str):
        return FoldKey(names, parts[0][1], attrgetter(given), False)
    positions = [event._fields.index(name) for name in names]
    take = itemgetter(*positions)
    if len(names) == 1:
        raise DefinitionError(
            f"key={given!r} is of one field: give it by its name, key={names[0]!r}", subject="key"
        )
    if len(set(names)) < len(names):
        raise DefinitionError(f"key={given!r} names a field twice", subject="key")
    record = _key_record(names)
    kind = str(SqlType("struct", tuple(sql_type(part.kind) for _, part in parts), names))
    return FoldKey(
        names, Nested(kind, False, record, parts), lambda one: record._make(take(one)), False
    )


@cache
def _key_record(names: tuple[str, ...]) -> Any:
    """The NamedTuple of these fields. Of no module: so one of its values is pickled with the names."""
    fields: Any = namedtuple("Key", names)  # type: ignore[misc]
    return type("Key", (fields,), {"__reduce__": _reduced_key, "__slots__": ()})


def _reduced_key(key: Any) -> tuple[Any, ...]:
    return _key_of, (key._fields, tuple(key))


def _key_of(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return _key_record(names)._make(values)


def _derived(function: Callable[[Any], Any]) -> FoldKey:
    """The function says by its return type what a key is, and by its name what it is called."""
    name = getattr(function, "__name__", repr(function))
    hint = get_type_hints(function, include_extras=True).get("return")
    if hint is None:
        raise DefinitionError(
            f"key={name} does not say what it returns: write a function with a return type, such as "
            "def email(order: Order) -> str",
            subject=name,
        )
    try:
        shape = shape_of(hint)
    except UnknownTypeError as error:
        raise DefinitionError(f"key {name} is {hint}: {error}", subject=name) from None
    if isinstance(shape, Nested) and not shape.nullable:
        names = tuple(part for part, _ in shape.parts)
        for part, of in shape.parts:
            _groupable(part, of)
    else:
        names, shape = (name,), _groupable(name, shape)

    def key_of(event: Any) -> Any:
        return shape.stored(function(event), f"key {name}")

    return FoldKey(names, shape, key_of, True)


def _groupable(name: str, shape: Shape) -> Shape:
    if shape.is_nested or (isinstance(shape, Scalar) and shape.plain is float):
        raise DefinitionError(
            f"key {name!r} is {shape.kind}, by which nothing is grouped: use int, str, bool, bytes, "
            "date, datetime, Decimal or an Enum",
            subject=name,
        )
    return shape


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


SPARK_SEED = 42
# Digits of a decimal that Spark keeps in 64 bits.
LONG_DIGITS = 18


def hashes_of(keys: pa.Array | pa.ChunkedArray) -> Any:
    """The hash of each key, as the signed integer that it is in Spark. Each distinct one once."""
    codes, distinct = codes_of(keys)
    parts = distinct.flatten() if pa.types.is_struct(distinct.type) else [distinct]
    rows = zip(*map(_bytes_of, parts), strict=True)
    hashes = [int.from_bytes(_hash(row).to_bytes(8), signed=True) for row in rows]
    return np.array(hashes, np.int64)[codes]


def buckets_of(keys: pa.Array | pa.ChunkedArray, ids: Any) -> Any:
    """The bucket of each key, one of `ids`: as `bucket_of` has Spark compute it."""
    return np.array(ids, np.int32)[hashes_of(keys) % len(ids)]


def _hash(parts: tuple[bytes | None, ...]) -> int:
    """One part seeds the next; one that is null is passed over."""
    return reduce(
        lambda seed, part: seed if part is None else xxh64_intdigest(part, seed), parts, SPARK_SEED
    )


def _bytes_of(column: pa.Array) -> list[bytes | None]:
    """What Spark hashes of each value."""
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


UINT32 = 2**32 - 1


@lru_cache
def bucket_ids(buckets: int, partitions: int) -> tuple[int, ...]:
    """The `buckets` smallest numbers of which no partition gets more than its share.

    Part of the stored state, as both arguments are: pinned for a generation.
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
    """Spark's hash of an int: 32-bit murmur3 of its four bytes, as a signed number."""
    block = _rotate(number * 0xCC9E2D51 & UINT32, 15) * 0x1B873593 & UINT32
    mixed = _rotate(SPARK_SEED ^ block, 13) * 5 + 0xE6546B64 & UINT32
    mixed ^= 4  # the length in bytes
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & UINT32
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & UINT32
    mixed ^= mixed >> 16
    return mixed - 2**32 if mixed >> 31 else mixed


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & UINT32
