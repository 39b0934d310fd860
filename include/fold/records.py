"""The columns of a NamedTuple: its field order is the stored schema.

Events, states and outputs are NamedTuples of plain Python types. This module reads
their annotations, so that each engine can make its own schema of them.
"""

import types
from typing import Any, NamedTuple, NewType, Union, get_args, get_origin, get_type_hints

# Microseconds since 1970, UTC, that a table shows as a timestamp. Only outputs have them:
# events and states are compared and counted with, and plain integers do that.
Instant = NewType("Instant", int)

SCALARS: dict[Any, str] = {int: "bigint", float: "double", str: "string", bool: "boolean"}
MIN_INT, MAX_INT = -(2**63), 2**63 - 1
NAMES: dict[str, type] = {name: scalar for scalar, name in SCALARS.items()}


class DefinitionError(TypeError):
    """A stream's records or functions do not fit together; found when it is defined."""


class Column(NamedTuple):
    """One column of a record. `kind` is a SQL type: bigint, double, array<bigint>, ..."""

    name: str
    kind: str
    nullable: bool

    def check(self, value: Any) -> None:
        """Raise TypeError for a value that the column cannot hold exactly.

        Spark would not complain: a wrong Python type becomes NULL in its state store.
        """
        if value is None and self.nullable:
            return
        if self.kind in NAMES:
            accepted = _fits(value, NAMES[self.kind])
        else:
            element = NAMES[self.kind[len("array<") : -1]]
            accepted = type(value) is tuple and all(_fits(item, element) for item in value)
        if type(value) is int and self.kind == "bigint" and not accepted:
            raise TypeError(f"{self.name} = {value!r} is beyond the 64 bits of a bigint")
        if not accepted:
            raise TypeError(
                f"{self.name} = {value!r} is a {type(value).__name__}, but the column is {self.kind}"
            )


def _fits(value: Any, scalar: type) -> bool:
    if type(value) is int and scalar is int:
        return MIN_INT <= value <= MAX_INT
    return type(value) is scalar


def columns_of(record: type) -> tuple[Column, ...]:
    """The columns of a NamedTuple class, in order.

    Raises DefinitionError for a class that is no NamedTuple, and for a field that is not
    int, float, str, bool or Instant, a tuple of one of these but the last
    (`tuple[int, ...]`), or one of them `| None`.
    """
    if not (isinstance(record, type) and issubclass(record, tuple) and hasattr(record, "_fields")):
        raise DefinitionError(f"{record!r} must be a NamedTuple class")
    hints = get_type_hints(record)
    return tuple(_column(record, name, hints[name]) for name in record._fields)


def _column(record: type, name: str, hint: Any) -> Column:
    nullable = False
    if get_origin(hint) in (Union, types.UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        nullable = len(options) < len(get_args(hint))
        hint = options[0] if len(options) == 1 else hint
    kind = "timestamp" if hint is Instant else SCALARS.get(hint) or _array_kind(hint)
    if kind is None:
        raise DefinitionError(
            f"{record.__name__}.{name} is {hint}: use int, float, str, bool, "
            "a tuple of one of these, or one of them | None; in outputs also Instant"
        )
    return Column(name, kind, nullable)


def _array_kind(hint: Any) -> str | None:
    element, *rest = get_args(hint) or (None,)
    if get_origin(hint) is tuple and rest == [...] and element in SCALARS:
        return f"array<{SCALARS[element]}>"
    return None
