"""Records of a stream: a NamedTuple's columns, values as they are stored, SQL types."""

import re
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from enum import Enum, Flag
from functools import cache, lru_cache
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

MIN_INT, MAX_INT = -(2**63), 2**63 - 1
FIRST_INSTANT_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND


class FrozenDict(dict[Any, Any]):
    """A dict in a record, in the order of its keys.

    Changed in place it would be stored without `update`, and stay when a call is a dead letter.
    """

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a dict in a record is not changed in place: make {**old, key: value}")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))

    def __reduce__(self) -> Any:
        return FrozenDict, (dict(self),)


@dataclass(frozen=True)
class Shape:
    """The type of a value; `kind` is its SQL type."""

    kind: str
    nullable: bool

    def stored(self, value: Any, name: str) -> Any:
        """Return the value as it is stored; TypeError or UnicodeEncodeError if it cannot be."""
        if value is None:
            if not self.nullable:
                raise TypeError(f"{name} is None, but is not declared `| None`")
            return None
        return self._stored(value, name)

    def _stored(self, value: Any, name: str) -> Any:
        raise NotImplementedError

    def _refuse(self, value: Any, name: str) -> NoReturn:
        said = f"is a {type(value).__name__}, but the column is {self.kind}"
        raise TypeError(f"{name} = {value!r} {said}")


@dataclass(frozen=True)
class Scalar(Shape):
    """A value that is not made of others, of the type `plain`.

    A datetime is stored in UTC, a Decimal with all declared digits, an Enum's member as value.
    """

    plain: Any

    @property
    def is_instant(self) -> bool:
        """True of microseconds since 1970 that a table shows as a timestamp."""
        return self.plain is int and self.kind == "timestamp"

    def _stored(self, value: Any, name: str) -> Any:
        if type(value) is not self.plain:  # datetimes of pandas have nanoseconds
            self._refuse(value, name)
        if self.is_instant:
            check_years(value, name)
        elif self.plain is int and not MIN_INT <= value <= MAX_INT:
            raise TypeError(f"{name} = {value!r} is beyond the 64 bits of a {self.kind}")
        elif self.plain is str:
            _check_text(value, name)
        elif self.plain is datetime:
            return _in_utc(value, name)
        elif self.plain is Decimal:
            kind = sql_type(self.kind)
            exact = exact_decimal(value, kind.precision, kind.scale)
            if exact is None:
                raise TypeError(f"{name} = {value} is no {self.kind}: round it, or declare more")
            return exact
        return value


def _check_text(value: str, name: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        error.reason = f"{error.reason}, and {name} has half a pair"
        raise


def _in_utc(value: datetime, name: str) -> datetime:
    if value.tzinfo is None:
        raise TypeError(f"{name} = {value!r} has no zone: give it one, such as datetime.UTC")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise _beyond_the_years(value, name) from None


def check_years(count: int, name: str) -> None:
    """Raise TypeError for an Instant that no datetime can show."""
    if not FIRST_INSTANT_US <= count <= LAST_INSTANT_US:
        raise _beyond_the_years(count, name)


def _beyond_the_years(value: Any, name: str) -> TypeError:
    return TypeError(f"{name} = {value!r} is beyond the years 1 to 9999")


def exact_decimal(value: Decimal, precision: int, scale: int) -> Decimal | None:
    """Return the number with so many digits; None when it has more."""
    if value.is_finite():
        with suppress(Inexact, InvalidOperation):
            exact = _digits(precision).quantize(value, Decimal((0, (1,), -scale)))
            return exact.copy_abs() if exact.is_zero() else exact  # no negative nothing
    return None


@cache
def _digits(precision: int) -> Context:
    return Context(prec=precision, traps=[Inexact, InvalidOperation])


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
SYNONYMS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "numeric": "decimal",
    "dec": "decimal",
}
PARTS = {"array": 1, "map": 2}
KNOWN = f"{', '.join(SCALARS)}, decimal(p,s), array<...>, map<..., ...>, struct<name: ..., ...>"
MAX_PRECISION = 38
ANY_DECIMAL = "decimal(38,18)"  # what Spark makes of a Decimal of Python's by itself
TOKEN = re.compile(r"\w+|`[^`]+`|\S")


class SqlTypeError(ValueError):
    """A text is no SQL type."""


class SqlType(NamedTuple):
    """A type by its name."""

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
        """True if each value of `other` is exactly one of this, structs by names."""
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


@lru_cache
def sql_type(text: str) -> SqlType:
    """Return the type that `text` names, such as `array<struct<sku: string, price: decimal(12,2)>>`.

    >>> str(sql_type("map<string, long>"))
    'map<string, bigint>'
    """
    words = TOKEN.findall(text)[::-1]  # the next one last
    with suppress(IndexError, ValueError):
        found = _type(words)
        if not words:
            return found
    raise SqlTypeError(f"{text!r} is no SQL type: known are {KNOWN}")


def _type(words: list[str]) -> SqlType:
    """Return the type that begins with the next word; ValueError for none, IndexError where words end."""
    word = words.pop().lower()
    name = SYNONYMS.get(word, word)
    if name in SCALARS:
        return SqlType(name)
    if name == "decimal":
        return _decimal(words)
    if name == "struct":
        names, parts = zip(*_listed(words, "<>", _field), strict=True)
        if len(set(map(str.lower, names))) == len(names):  # a table has only one of them
            return SqlType(name, parts, names)
    elif len(of := _listed(words, "<>", _type)) == PARTS.get(name):
        return SqlType(name, tuple(of))
    raise ValueError(name)


def _decimal(words: list[str]) -> SqlType:
    digits = _listed(words, "()", lambda left: int(left.pop())) if words[-1:] == ["("] else [10]
    precision, scale = digits if len(digits) > 1 else (*digits, 0)
    if not 0 <= scale <= precision <= MAX_PRECISION or precision == 0:
        raise ValueError(digits)
    return SqlType("decimal", precision=precision, scale=scale)


def _listed(words: list[str], marks: str, of: Callable[[list[str]], Any]) -> list[Any]:
    if words.pop() != marks[0]:
        raise ValueError(marks)
    parts = [of(words)]
    while (mark := words.pop()) == ",":
        parts.append(of(words))
    if mark != marks[1]:
        raise ValueError(mark)
    return parts


def _field(words: list[str]) -> tuple[str, SqlType]:
    name = words.pop()
    if not ((name[1:-1] and name[0] == "`") or name.isidentifier()):
        raise ValueError(name)
    if words[-1:] == [":"]:
        words.pop()
    return name.strip("`"), _type(words)


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else f"`{name}`"


# Microseconds since 1970, UTC, that a table shows as a timestamp: an int to compare and count with.
Instant = NewType("Instant", int)
NAMES: dict[Any, str] = {int: "bigint", float: "double", str: "string", bool: "boolean"}
KINDS: dict[Any, str] = {
    **NAMES,
    bytes: "binary",
    date: "date",
    datetime: "timestamp",
    Instant: "timestamp",
    Decimal: ANY_DECIMAL,
}


class DefinitionError(StatefulError, TypeError):
    """The records or functions of a stream do not fit together."""

    code = "wrong_definition"


def wrong(name: str, said: str) -> DefinitionError:
    """Return the error for a part of a definition: an argument of the fold, a record or a field."""
    return DefinitionError(f"{name} {said}", subject=name)


class Column(NamedTuple):
    """One column of a record."""

    name: str
    shape: Shape

    @property
    def kind(self) -> str:
        """The SQL type: bigint, array<bigint>, decimal(12,2), ..."""
        return self.shape.kind

    @property
    def nullable(self) -> bool:
        return self.shape.nullable

    @property
    def plain(self) -> Any:
        """The type of numbers, texts or booleans, which are stored unchanged; else None."""
        return _plain(self.shape)

    @property
    def is_plain(self) -> bool:
        """True if each value is its own stored form: plain, an Instant, or a tuple of these."""
        shape = self.shape
        if isinstance(shape, Items):
            return _plain(shape.item) is not None and not shape.item.nullable
        return _plain(shape) is not None or (isinstance(shape, Scalar) and shape.is_instant)


def _plain(shape: Shape) -> Any:
    is_plain = isinstance(shape, Scalar) and NAMES.get(shape.plain) == shape.kind
    return shape.plain if is_plain else None  # type: ignore[attr-defined]


def is_plainly(value: Any, plain: Any) -> bool:
    """True if `value` is exactly of the type `plain`, and is stored unchanged without further checks."""
    if type(value) is not plain:
        return False
    if type(value) is int:
        return MIN_INT <= value <= MAX_INT
    return type(value) is not str or value.isascii()


def record_of(record: Any, values: Any) -> Any:
    """Return `values` as that record; TypeError for no tuple with a value for each field."""
    if type(values) is record:
        return values
    if not isinstance(values, tuple):
        raise TypeError(f"{values!r} is no {record.__name__}")
    return record._make(values)


def nested(record: Any, columns: Sequence[Column], nullable: bool = False) -> Nested:
    """Return the shape of a record with these columns."""
    kinds = ", ".join(f"{_quoted(column.name)}: {column.kind}" for column in columns)
    return Nested(f"struct<{kinds}>", nullable, record, tuple(columns))


def columns_of(record: Any, within: tuple[type, ...] = ()) -> tuple[Column, ...]:
    """Return the columns of a NamedTuple class, in order; DefinitionError for anything else."""
    if not _is_record(record):
        raise DefinitionError(f"{record!r} must be a NamedTuple class", subject=repr(record))
    if record in within:
        raise wrong(record.__name__, "holds itself: nest to a depth that is known")
    hints = get_type_hints(record, include_extras=True)
    return tuple(
        Column(name, shape_of(hints[name], f"{record.__name__}.{name}", (*within, record)))
        for name in record._fields
    )


def shape_of(hint: Any, name: str, within: tuple[type, ...] = ()) -> Shape:
    """Return the shape of a value annotated with `hint`; DefinitionError for a type that has none."""
    nullable, given = False, hint
    if get_origin(hint) in (Union, types.UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        nullable = len(options) < len(get_args(hint))
        hint = options[0] if len(options) == 1 else hint
    generic, parts = get_origin(hint), get_args(hint)
    if hint in KINDS:
        return Scalar(KINDS[hint], nullable, int if hint is Instant else hint)
    if generic is Annotated and parts[0] is Decimal:
        with suppress(SqlTypeError, TypeError):
            if (kind := sql_type(parts[1])).name == "decimal":
                return Scalar(str(kind), nullable, Decimal)
    if isinstance(hint, type) and issubclass(hint, Enum) and not issubclass(hint, Flag):
        values = [member.value for member in hint]
        if all(type(value) is str or is_plainly(value, int) for value in values):
            kinds = set(map(type, values))
            if len(kinds) == 1:
                return Scalar(NAMES[kinds.pop()], nullable, hint)
    if _is_record(hint) and hint._fields:
        return nested(hint, columns_of(hint, within), nullable)
    if generic is tuple and parts[1:] == (...,):
        item = shape_of(parts[0], name, within)
        return Items(f"array<{item.kind}>", nullable, item)
    if generic in (dict, Mapping) and parts[0] in (str, int):
        key, item = shape_of(parts[0], name, within), shape_of(parts[1], name, within)
        return Pairs(f"map<{key.kind}, {item.kind}>", nullable, key, item)
    raise wrong(
        name,
        f"is {given}: use int, float, str, bool, bytes, date, datetime, Instant, Decimal (or "
        'Annotated[Decimal, "decimal(p,s)"]), an Enum of texts or 64-bit ints, a NamedTuple, '
        "tuple[X, ...], dict[str, X] or dict[int, X] of these, or one of them | None",
    )


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")
