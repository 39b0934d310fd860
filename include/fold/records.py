"""The columns of a NamedTuple: its field order is the stored schema.

Events, states and outputs are NamedTuples of plain Python types. This module reads
their annotations, so that each engine can make its own schema of them.
"""

import types
from collections.abc import Mapping, Set
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, Flag
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NewType,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from include.fold.shapes import (
    MAX_INT,
    MIN_INT,
    Items,
    Member,
    Moment,
    Money,
    Nested,
    Pairs,
    Scalar,
    Shape,
)
from include.fold.sql_types import SqlType, SqlTypeError, sql_type
from include.lake.errors import StatefulError

__all__ = ["MAX_INT", "MIN_INT", "Column", "DefinitionError", "Instant", "columns_of"]

# Microseconds since 1970, UTC, that a table shows as a timestamp: an int to compare and count with.
Instant = NewType("Instant", int)

NAMES: dict[str, type] = {"bigint": int, "double": float, "string": str, "boolean": bool}
# Whose items are no values in the order of a record's fields: a mapping has its keys, a text its letters.
NO_RECORDS = (Mapping, Set, str, bytes)
SCALAR_NAMES: dict[Any, str] = {plain: name for name, plain in NAMES.items()}
KINDS: dict[Any, str] = {**SCALAR_NAMES, bytes: "binary", date: "date"}
# What Spark makes of a Decimal by itself.
ANY_DECIMAL = "decimal(38,18)"


class DefinitionError(StatefulError, TypeError):
    """A stream's records or functions do not fit together; found when it is defined."""

    code = "wrong_definition"


def wrong(name: str, said: str) -> DefinitionError:
    """The error for a part of a definition: an argument of the fold, a record or a field."""
    return DefinitionError(f"{name} {said}", subject=name)


class Column(NamedTuple):
    """One column of a record. `kind` is its SQL type: bigint, array<bigint>, decimal(12,2), ..."""

    name: str
    kind: str
    nullable: bool
    shape: Shape

    @property
    def is_plain(self) -> bool:
        """Whether values are plain numbers, texts or booleans, or a tuple of these."""
        shape = self.shape
        if isinstance(shape, Items):
            return not shape.item.nullable and _is_plain(shape.item)
        return _is_plain(shape) or (isinstance(shape, Moment) and shape.is_count)

    def check(self, value: Any) -> None:
        """Raise TypeError for a value that the column cannot hold exactly.

        Spark would not complain: a wrong Python type becomes NULL in its state store.
        """
        self.shape.stored(value, self.name)


def _is_plain(shape: Shape) -> bool:
    return isinstance(shape, Scalar) and shape.kind in NAMES


def record_of(record: Any, values: Any) -> Any:
    """`values` as that record. Raises TypeError for what has not one for each field, in their order."""
    if type(values) is record:
        return values
    if isinstance(values, NO_RECORDS):
        raise TypeError(f"{values!r} is no {record.__name__}")
    return record._make(values)


def columns_of(record: type) -> tuple[Column, ...]:
    """The columns of a NamedTuple class, in order.

    Raises DefinitionError for a class that is no NamedTuple, and for a field of a type that
    `shape_of` does not know.
    """
    return tuple(
        Column(name, shape.kind, shape.nullable, shape) for name, shape in _parts(record, ())
    )


def _parts(record: Any, within: tuple[type, ...]) -> list[tuple[str, Shape]]:
    if not _is_record(record):
        raise DefinitionError(f"{record!r} must be a NamedTuple class", subject=repr(record))
    if record in within:
        raise wrong(record.__name__, "holds itself: nest to a depth that is known")
    hints = get_type_hints(record, include_extras=True)
    parts = []
    for name in record._fields:
        try:
            parts.append((name, shape_of(hints[name], (*within, record))))
        except UnknownTypeError as error:
            raise DefinitionError(
                f"{record.__name__}.{name} is {hints[name]}: {error}",
                subject=f"{record.__name__}.{name}",
            ) from None
    return parts


class UnknownTypeError(Exception):
    """A type that no column can have; the message says which can be."""


def shape_of(hint: Any, within: tuple[type, ...] = ()) -> Shape:
    """What a value annotated with `hint` is made of.

    int, float, str, bool, bytes, date, datetime, Instant, Decimal (or Annotated[Decimal,
    "decimal(p,s)"]), an Enum of texts or ints, another NamedTuple, tuple[X, ...], dict[str, X] or
    dict[int, X]; each `| None`. UnknownTypeError for any other.
    """
    nullable = False
    if get_origin(hint) in (Union, types.UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        nullable = len(options) < len(get_args(hint))
        hint = options[0] if len(options) == 1 else hint
    if hint in (datetime, Instant):
        return Moment("timestamp", nullable, hint is Instant)
    if hint in KINDS:
        return Scalar(KINDS[hint], nullable, hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _member(hint, nullable)
    if _is_record(hint):
        if not hint._fields:
            raise UnknownTypeError(f"{hint.__name__} has no fields, and no column can be of none")
        parts = tuple(_parts(hint, within))
        kind = SqlType("struct", tuple(_type(s) for _, s in parts), tuple(n for n, _ in parts))
        return Nested(str(kind), nullable, hint, parts)
    return _money(hint, nullable) or _collection(hint, nullable, within) or _unknown()


def _unknown() -> Shape:
    raise UnknownTypeError(
        "use int, float, str, bool, bytes, date, datetime, Instant, Decimal, an Enum, a NamedTuple, "
        "tuple[X, ...], dict[str, X] or dict[int, X] of these, or one of them | None"
    )


def _money(hint: Any, nullable: bool) -> Shape | None:
    given, text = (hint, ANY_DECIMAL)
    if get_origin(hint) is Annotated:
        given, text, *_ = get_args(hint)
    if given is not Decimal:
        return None
    try:
        kind = sql_type(text)
    except (SqlTypeError, TypeError) as error:
        raise UnknownTypeError(str(error)) from None
    if kind.name != "decimal":
        raise UnknownTypeError(f"{text!r} is no decimal(p,s)")
    return Money(str(kind), nullable, kind.precision, kind.scale)


def _member(members: type[Enum], nullable: bool) -> Shape:
    kinds = {type(member.value) for member in members}
    if kinds not in ({str}, {int}):
        raise UnknownTypeError(f"the values of {members.__name__} must be all texts or all ints")
    for member in members:
        if isinstance(member.value, int) and not MIN_INT <= member.value <= MAX_INT:
            raise UnknownTypeError(f"{member} = {member.value} is beyond the 64 bits of a bigint")
    if issubclass(members, Flag):
        raise UnknownTypeError("flags together are no member, and could not be read again: use int")
    return Member(SCALAR_NAMES[kinds.pop()], nullable, members)


def _collection(hint: Any, nullable: bool, within: tuple[type, ...]) -> Shape | None:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is tuple and parts[1:] == (...,):
        item = shape_of(parts[0], within)
        return Items(f"array<{item.kind}>", nullable, item)
    if origin in (dict, Mapping) and parts[0] in (str, int):
        key, item = shape_of(parts[0], within), shape_of(parts[1], within)
        return Pairs(f"map<{key.kind}, {item.kind}>", nullable, key, item)
    return None


def _type(shape: Shape) -> SqlType:
    return sql_type(shape.kind)


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")
