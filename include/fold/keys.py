"""The key of a fold's events (fields, or a function of one), and the numbers of buckets."""

from collections import Counter, namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from operator import attrgetter, itemgetter
from typing import Any, get_type_hints

from include.fold.records import (
    Column,
    Nested,
    Scalar,
    Shape,
    nested,
    shape_of,
    wrong,
)

GivenKey = str | tuple[str, ...] | Callable[[Any], Any]


@dataclass(frozen=True)
class FoldKey:
    """The key of each event; of several columns a NamedTuple of theirs."""

    names: tuple[str, ...]  # of its columns in outputs
    shape: Shape
    of: Callable[[Any], Any]  # an event
    is_derived: bool  # by a function of the event: it is no field of it

    @property
    def kind(self) -> str:
        return self.shape.kind

    @property
    def parts(self) -> tuple[Column, ...]:
        if isinstance(self.shape, Nested):
            return self.shape.parts
        return (Column(self.names[0], self.shape),)

    def values(self, key: Any) -> dict[str, Any]:
        """The columns of one key."""
        return dict(zip(self.names, key if isinstance(self.shape, Nested) else (key,), strict=True))

    def text(self) -> str:
        """For people: `user_id`, `country, customer_id`."""
        return ", ".join(self.names)


def fold_key(given: GivenKey, event: Any, columns: Sequence[Column]) -> FoldKey:
    """The key that a stream's file declares; DefinitionError for one that cannot group."""
    if callable(given):
        return _derived(given)
    known = {column.name: column for column in columns}
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or len(set(names)) < len(names):
        raise wrong("key", f"is {given!r}: it must name a field, or several, each once")
    for name in names:
        if name not in known:
            raise wrong(name, f"of key= is no field of {event.__name__}: {', '.join(known)}")
    shapes = [_groupable(name, known[name].shape) for name in names]
    if len(names) == 1:
        return FoldKey(names, shapes[0], attrgetter(*names), is_derived=False)
    positions = [event._fields.index(name) for name in names]
    take = itemgetter(*positions)
    record: Any = namedtuple("Key", names)  # type: ignore[misc]
    shape = nested(record, [known[name] for name in names])
    return FoldKey(names, shape, lambda one: record._make(take(one)), is_derived=False)


def _derived(function: Callable[[Any], Any]) -> FoldKey:
    name = getattr(function, "__name__", repr(function))
    hint = get_type_hints(function, include_extras=True).get("return")
    if hint is None:
        raise wrong(name, "groups events, but has no return type: def email(order: Order) -> str")
    shape = shape_of(hint, name)
    if isinstance(shape, Nested) and not shape.nullable:
        names = tuple(part for part, _ in shape.parts)
        for part, of in shape.parts:
            _groupable(part, of)
    else:
        names, shape = (name,), _groupable(name, shape)

    def key_of(event: Any) -> Any:
        return shape.stored(function(event), f"key {name}")

    return FoldKey(names, shape, key_of, is_derived=True)


def _groupable(name: str, shape: Shape) -> Shape:
    if not isinstance(shape, Scalar) or shape.plain is float:
        raise wrong(name, f"of key= is {shape.kind}, by which nothing is grouped")
    return shape


SPARK_SEED = 42
UINT32 = 2**32 - 1


@lru_cache
def bucket_ids(buckets: int, partitions: int) -> tuple[int, ...]:
    """The `buckets` smallest numbers of which no partition gets more than its share.

    Part of the stored state, as both arguments are.
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
