"""SQL types as text: what a field may be declared as, checked and in one spelling.

Those that Delta stores, nested at will. Text alone: whoever declares types needs no package.
"""

import re
from typing import NamedTuple

from include.text_table import did_you_mean

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
TOKEN = re.compile(r"\s*(?:(?P<word>\w+)|`(?P<quoted>[^`]+)`|(?P<mark>[<>(),:]))")


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
    tokens = _Tokens(text)
    found = _type(tokens)
    if tokens.left:
        raise tokens.error(f"nothing was expected after {found}")
    return found


class _Tokens:
    """What is left of a text, word by word."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.left = text.rstrip()

    def next(self, what: str) -> tuple[str, bool]:
        """The next word or mark, and whether it stood in backticks."""
        found = TOKEN.match(self.left)
        if found is None:
            raise self.error(f"expected {what}")
        self.left = self.left[found.end() :]
        quoted = found["quoted"]
        return quoted or found["word"] or found["mark"], quoted is not None

    def takes(self, mark: str) -> bool:
        """Whether the mark comes next; then it is taken."""
        is_next = self.left.lstrip().startswith(mark)
        if is_next:
            self.left = self.left.lstrip()[len(mark) :]
        return is_next

    def expect(self, mark: str) -> None:
        if not self.takes(mark):
            raise self.error(f"expected {mark}")

    def error(self, problem: str) -> SqlTypeError:
        at = f"at {self.left.strip()!r}" if self.left.strip() else "at its end"
        return SqlTypeError(f"{self._text!r} is no SQL type: {problem} {at}")


def _type(tokens: _Tokens) -> SqlType:
    word, _ = tokens.next("a type")
    name = SYNONYMS.get(word.lower(), word.lower())
    if name == "decimal":
        return _decimal(tokens)
    if name == "struct":
        return _struct(tokens)
    if name in ("array", "map"):
        return SqlType(name, _parts(tokens, 1 if name == "array" else 2))
    if name not in SCALARS:
        raise SqlTypeError(_unknown(word))
    return SqlType(name)


def _unknown(word: str) -> str:
    meant = did_you_mean(word.lower(), [*SCALARS, "decimal", "array", "map", "struct"])
    known = ", ".join([*SCALARS, "decimal(p,s)", *NESTED])
    return f"unknown type {word!r}: known are {known}{meant}"


def _decimal(tokens: _Tokens) -> SqlType:
    """Spark's own, where no digits are given: decimal(10,0)."""
    precision, scale = 10, 0
    if tokens.takes("("):
        precision = _number(tokens)
        scale = _number(tokens) if tokens.takes(",") else 0
        tokens.expect(")")
    if not 0 <= scale <= precision <= MAX_PRECISION or precision == 0:
        raise SqlTypeError(
            f"decimal({precision},{scale}): digits are 1 to {MAX_PRECISION}, of which the second "
            "number are behind the point"
        )
    return SqlType("decimal", precision=precision, scale=scale)


def _number(tokens: _Tokens) -> int:
    word, _ = tokens.next("a number")
    if not (word.isascii() and word.isdigit()):
        raise tokens.error(f"{word!r} is no number of digits")
    return int(word)


def _parts(tokens: _Tokens, count: int) -> tuple[SqlType, ...]:
    tokens.expect("<")
    parts = [_type(tokens)]
    for _ in range(count - 1):
        tokens.expect(",")
        parts.append(_type(tokens))
    tokens.expect(">")
    return tuple(parts)


def _struct(tokens: _Tokens) -> SqlType:
    fields: dict[str, SqlType] = {}
    tokens.expect("<")
    while not fields or tokens.takes(","):
        name, is_quoted = tokens.next("a field's name")
        if not (is_quoted or name.isidentifier()):
            raise tokens.error(f"{name!r} is no field's name")
        if name in fields:
            raise tokens.error(f"the field {name} is there twice")
        if other := next((known for known in fields if known.lower() == name.lower()), None):
            # A table has only one of them.
            raise tokens.error(f"the fields {other} and {name} differ in case alone")
        tokens.takes(":")
        fields[name] = _type(tokens)
    tokens.expect(">")
    return SqlType("struct", tuple(fields.values()), tuple(fields))


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else f"`{name}`"
