"""What a field of a record holds, and the one form in which it is stored.

A stored value has one form, whoever made it: a decimal its declared digits, an instant UTC, a
dict its keys in order. So what a function sees does not depend on whether its state came from the
store or from the call before. Plain Python, for whoever only declares records.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from enum import Enum
from functools import cached_property
from typing import Any, NoReturn

from include.fold.admission import EPOCH, LAST_INSTANT_US, MICROSECOND

MIN_INT, MAX_INT = -(2**63), 2**63 - 1
FIRST_INSTANT_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND


class FrozenDict(dict[Any, Any]):
    """A dict in a record: its keys in order, and nobody changes it in place.

    What is changed in place would be stored without `update`, and stay when a call is rejected.
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

    @cached_property
    def _digits(self) -> Context:
        return Context(prec=self.precision, traps=[Inexact, InvalidOperation])

    def _stored(self, value: Any, name: str) -> Any:
        if type(value) is not Decimal:
            self._refuse(value, name)
        if value.is_finite():
            with suppress(Inexact, InvalidOperation):
                exact = self._digits.quantize(value, Decimal((0, (1,), -self.scale)))
                return abs(exact) if exact.is_zero() else exact  # no negative nothing
        raise TypeError(
            f"{name} = {value} is no {self.kind}: round it, or declare more digits by "
            'Annotated[Decimal, "decimal(p,s)"]'
        )


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
    parts: tuple[tuple[str, Shape], ...]

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
