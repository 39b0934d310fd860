"""Records of a stream: a NamedTuple's columns, the form in which each value is stored, SQL types as text.

Events, states and outputs are NamedTuples of plain Python types. This module reads
their annotations, so that each engine can make its own schema of them.
"""

import re
import types
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from enum import Enum, Flag
from functools import cache
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NewType,
    NoReturn,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from include.fold.admission import EPOCH, LAST_INSTANT_US, MICROSECOND
from include.lake.errors import StatefulError
from include.text_table import did_you_mean

MIN_INT, MAX_INT = -(2**63), 2**63 - 1
FIRST_INSTANT_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND


class FrozenDict(dict[Any, Any]):
    """A dict in a record: its keys in order, and nobody changes it in place.

    What is changed in place would be stored without `update`, and stay when a call is a dead letter.
    """

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "a dict in a record is not changed in place: make a new one, such as {**old, key: value}"
        )

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))

    def __reduce__(self) -> Any:
        return FrozenDict, (dict(self),)


@dataclass(frozen=True)
class Shape:
    """What a value is made of. `kind` is its SQL type."""

    kind: str
    nullable: bool

    @property
    def is_nested(self) -> bool:
        """Whether it is made of other values."""
        return isinstance(self, (Nested, Items, Pairs))

    def stored(self, value: Any, name: str) -> Any:
        """The value as it is stored; TypeError, which names it, for one that cannot be exactly.

        Also UnicodeEncodeError, for half a letter.
        """
        if value is None:
            if not self.nullable:
                raise TypeError(f"{name} is None, but is not declared `| None`")
            return None
        return self._stored(value, name)

    def _stored(self, value: Any, name: str) -> Any:
        raise NotImplementedError

    def _refuse(self, value: Any, name: str) -> NoReturn:
        raise TypeError(
            f"{name} = {value!r} is a {type(value).__name__}, but the column is {self.kind}"
        )


@dataclass(frozen=True)
class Scalar(Shape):
    """A value that is stored as it is: int, float, str, bool, bytes, date."""

    plain: Any  # the type

    def _stored(self, value: Any, name: str) -> Any:
        if type(value) is not self.plain:
            self._refuse(value, name)
        if self.plain is int and not MIN_INT <= value <= MAX_INT:
            raise TypeError(f"{name} = {value!r} is beyond the 64 bits of a {self.kind}")
        if self.plain is str:
            _check_text(value, name)
        return value


def _check_text(value: str, name: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        error.reason = f"{error.reason}, and {name} has half a pair"
        raise


@dataclass(frozen=True)
class Moment(Shape):
    """A datetime with a zone; stored as UTC. `is_count`: an Instant, microseconds since 1970."""

    is_count: bool

    def _stored(self, value: Any, name: str) -> Any:
        if self.is_count:
            count = Scalar(self.kind, False, int).stored(value, name)
            check_years(count, name)
            return count
        if type(value) is not datetime:  # that of pandas has nanoseconds, which would be cut off
            self._refuse(value, name)
        if value.tzinfo is None:
            raise TypeError(f"{name} = {value!r} has no zone: give it one, such as datetime.UTC")
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise _beyond_the_years(value, name) from None


def check_years(count: int, name: str) -> None:
    """Raise TypeError for an Instant that no timestamp of Python's, or of most readers, can show."""
    if not FIRST_INSTANT_US <= count <= LAST_INSTANT_US:
        raise _beyond_the_years(count, name)


def _beyond_the_years(value: Any, name: str) -> TypeError:
    return TypeError(f"{name} = {value!r} is beyond the years 1 to 9999")


@dataclass(frozen=True)
class Money(Shape):
    """A Decimal; stored with the digits that are declared, all of them."""

    precision: int
    scale: int

    def _stored(self, value: Any, name: str) -> Any:
        if type(value) is not Decimal:
            self._refuse(value, name)
        exact = exact_decimal(value, self.precision, self.scale)
        if exact is not None:
            return exact
        raise TypeError(
            f"{name} = {value} is no {self.kind}: round it, or declare more digits by "
            'Annotated[Decimal, "decimal(p,s)"]'
        )


def exact_decimal(value: Decimal, precision: int, scale: int) -> Decimal | None:
    """The number with so many digits behind the point; None when it has more, there or in all."""
    if value.is_finite():
        with suppress(Inexact, InvalidOperation):
            exact = _digits(precision).quantize(value, Decimal((0, (1,), -scale)))
            return exact.copy_abs() if exact.is_zero() else exact  # no negative nothing
    return None


@cache
def _digits(precision: int) -> Context:
    return Context(prec=precision, traps=[Inexact, InvalidOperation])


@dataclass(frozen=True)
class Member(Shape):
    """A member of an Enum; stored as its value."""

    members: type[Enum]

    def _stored(self, value: Any, name: str) -> Any:
        if type(value) is not self.members:
            self._refuse(value, name)
        return value


@dataclass(frozen=True)
class Nested(Shape):
    """Another record."""

    record: Any
    parts: tuple["Column", ...]

    def _stored(self, value: Any, name: str) -> Any:
        if type(value) is not self.record:
            self._refuse(value, name)
        members = zip(self.parts, value, strict=True)
        return self.record._make(part.stored(v, f"{name}.{field}") for (field, part), v in members)


@dataclass(frozen=True)
class Items(Shape):
    """A tuple of any length."""

    item: Shape

    def _stored(self, value: Any, name: str) -> Any:
        if type(value) is not tuple:
            self._refuse(value, name)
        return tuple(self.item.stored(v, f"{name}[{index}]") for index, v in enumerate(value))


@dataclass(frozen=True)
class Pairs(Shape):
    """A dict; stored in the order of its keys."""

    key: Shape
    item: Shape

    def _stored(self, value: Any, name: str) -> Any:
        if not isinstance(value, Mapping):
            self._refuse(value, name)
        stored = {
            self.key.stored(key, f"{name}'s key"): self.item.stored(v, f"{name}[{key!r}]")
            for key, v in value.items()
        }
        return FrozenDict(sorted(stored.items(), key=lambda pair: pair[0]))


SCALARS = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double"),
    *("string", "binary", "date", "timestamp", "timestamp_ntz"),
)
INTEGERS = ("tinyint", "smallint", "int", "bigint")
NESTED = ("array<...>", "map<..., ...>", "struct<name: ..., ...>")
SYNONYMS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "numeric": "decimal",
    "dec": "decimal",
}
MAX_PRECISION = 38
TOKEN = re.compile(r"\w+|`[^`]+`|\S")


class SqlTypeError(ValueError):
    """A text is no SQL type; the message says what is wrong with it."""


class SqlType(NamedTuple):
    """A type: of a scalar only the name, of a decimal its digits, of others what they are made of."""

    name: str
    parts: tuple["SqlType", ...] = ()  # of an array, its items; of a map, keys and values
    names: tuple[str, ...] = ()  # of a struct, for each part
    precision: int = 0  # of a decimal: digits in all
    scale: int = 0  # of these, behind the point

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        parts = [str(part) for part in self.parts]
        if self.name == "struct":
            parts = [f"{_quoted(n)}: {part}" for n, part in zip(self.names, parts, strict=True)]
        return f"{self.name}<{', '.join(parts)}>" if parts else self.name

    def holds(self, other: "SqlType") -> bool:
        """Whether each value of `other` is exactly one of this. Of structs by their members' names."""
        if {self.name, other.name} <= set(INTEGERS):
            return INTEGERS.index(self.name) >= INTEGERS.index(other.name)
        if self.name != other.name:
            return self.name == "double" and other.name in ("float", *INTEGERS[:3])
        if self.name == "decimal":
            digits = self.precision - self.scale, other.precision - other.scale
            return self.scale >= other.scale and digits[0] >= digits[1]
        if self.name == "struct":
            theirs = dict(zip(other.names, other.parts, strict=True))
            mine = zip(self.names, self.parts, strict=True)
            return all(name in theirs and part.holds(theirs[name]) for name, part in mine)
        return all(one.holds(two) for one, two in zip(self.parts, other.parts, strict=True))


def sql_type(text: str) -> SqlType:
    """The type that `text` names, such as `array<struct<sku: string, price: decimal(12,2)>>`.

    SqlTypeError when it names none.
    """
    words = TOKEN.findall(text)[::-1]  # the next one last
    try:
        found = _type(words)
        _expect(words, "")
    except SqlTypeError as error:
        raise SqlTypeError(f"{text!r} is no SQL type: {error}") from None
    return found


def _next(words: list[str]) -> str:
    return words.pop() if words else ""


def _expect(words: list[str], mark: str) -> None:
    if (word := _next(words)) != mark:
        raise SqlTypeError(f"expected {mark or 'its end'}, and not {word or 'its end'}")


def _listed(words: list[str], marks: str, of: Callable[[list[str]], Any]) -> list[Any]:
    """What stands between two marks, with commas between."""
    _expect(words, marks[0])
    parts = [of(words)]
    while words[-1:] == [","]:
        words.pop()
        parts.append(of(words))
    _expect(words, marks[1])
    return parts


def _type(words: list[str]) -> SqlType:
    word = _next(words)
    name = SYNONYMS.get(word.lower(), word.lower())
    if name == "decimal":
        return _decimal(words)
    if name == "struct":
        return _struct(words)
    if name in ("array", "map"):
        parts = _listed(words, "<>", _type)
        if len(parts) != (1 if name == "array" else 2):
            raise SqlTypeError(f"{name} has {len(parts)} parts")
        return SqlType(name, tuple(parts))
    if name not in SCALARS:
        meant = did_you_mean(name, [*SCALARS, "decimal", "array", "map", "struct"])
        known = ", ".join([*SCALARS, "decimal(p,s)", *NESTED])
        raise SqlTypeError(f"unknown type {word!r}: known are {known}{meant}")
    return SqlType(name)


def _decimal(words: list[str]) -> SqlType:
    """Spark's own, where no digits are given: decimal(10,0)."""
    digits = _listed(words, "()", _next) if words[-1:] == ["("] else ["10"]
    if len(digits) > 2 or not all(each.isascii() and each.isdigit() for each in digits):
        raise SqlTypeError(f"decimal({','.join(digits)}) has no numbers of digits")
    precision, scale = int(digits[0]), int([*digits, "0"][1])
    if not 0 <= scale <= precision <= MAX_PRECISION or precision == 0:
        raise SqlTypeError(
            f"decimal({precision},{scale}): digits are 1 to {MAX_PRECISION}, of which the second "
            "number are behind the point"
        )
    return SqlType("decimal", precision=precision, scale=scale)


def _struct(words: list[str]) -> SqlType:
    fields = _listed(words, "<>", _field)
    names = tuple(name for name, _ in fields)
    if len({name.lower() for name in names}) < len(names):  # a table has only one of them
        raise SqlTypeError(
            f"two of the fields {', '.join(names)} differ in case alone, or not at all"
        )
    return SqlType("struct", tuple(kind for _, kind in fields), names)


def _field(words: list[str]) -> tuple[str, SqlType]:
    name = _next(words)
    if not ((name[1:-1] and name[0] == "`") or name.isidentifier()):
        raise SqlTypeError(f"{name!r} is no field's name")
    if words[-1:] == [":"]:
        words.pop()
    return name.strip("`"), _type(words)


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else f"`{name}`"


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
    """One column of a record."""

    name: str
    shape: Shape

    @property
    def kind(self) -> str:
        """Its SQL type: bigint, array<bigint>, decimal(12,2), ..."""
        return self.shape.kind

    @property
    def nullable(self) -> bool:
        return self.shape.nullable

    @property
    def is_plain(self) -> bool:
        """Whether values are plain numbers, texts or booleans, or a tuple of these."""
        if isinstance(self.shape, Moment):
            return self.shape.is_count
        is_items = isinstance(self.shape, Items)
        shape = self.shape.item if isinstance(self.shape, Items) else self.shape
        is_plain = isinstance(shape, Scalar) and shape.kind in NAMES
        return is_plain and not (is_items and shape.nullable)

    def check(self, value: Any) -> None:
        """Raise TypeError for a value that the column cannot hold exactly.

        Spark would not complain: a wrong Python type becomes NULL in its state store.
        """
        self.shape.stored(value, self.name)


def record_of(record: Any, values: Any) -> Any:
    """`values` as that record. Raises TypeError for what has not one for each field, in their order."""
    if type(values) is record:
        return values
    if isinstance(values, NO_RECORDS):
        raise TypeError(f"{values!r} is no {record.__name__}")
    return record._make(values)


def nested(record: Any, columns: Sequence[Column], nullable: bool = False) -> Nested:
    """The shape of a record with these columns."""
    kinds = ", ".join(f"{_quoted(column.name)}: {column.kind}" for column in columns)
    return Nested(f"struct<{kinds}>", nullable, record, tuple(columns))


def columns_of(record: Any, within: tuple[type, ...] = ()) -> tuple[Column, ...]:
    """The columns of a NamedTuple class, in order.

    Raises DefinitionError for a class that is no NamedTuple, and for a field of a type that
    `shape_of` does not know.
    """
    if not _is_record(record):
        raise DefinitionError(f"{record!r} must be a NamedTuple class", subject=repr(record))
    if record in within:
        raise wrong(record.__name__, "holds itself: nest to a depth that is known")
    hints = get_type_hints(record, include_extras=True)
    columns = []
    for name in record._fields:
        try:
            shape = shape_of(hints[name], (*within, record))
        except UnknownTypeError as error:
            raise DefinitionError(
                f"{record.__name__}.{name} is {hints[name]}: {error}",
                subject=f"{record.__name__}.{name}",
            ) from None
        columns.append(Column(name, shape))
    return tuple(columns)


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
        return nested(hint, columns_of(hint, within), nullable)
    return _money(hint, nullable) or _collection(hint, nullable, within) or _unknown_hint()


def _unknown_hint() -> Shape:
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


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")
