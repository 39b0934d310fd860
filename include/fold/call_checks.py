"""Whether what one call leaves behind can be stored: looked at call by call.

Where the first failure stops the stream this is found for a whole bucket at once, by Arrow and
by the state store. What is let through here is what they let through.
"""

from collections.abc import Iterable
from operator import index
from typing import Any

from include.fold.definition import KeyedFold
from include.fold.failures import is_row, no_row
from include.fold.records import (
    MAX_INT,
    MIN_INT,
    NAMES,
    NO_RECORDS,
    Column,
    Items,
    Moment,
    Shape,
    record_of,
)

# Every whole number up to here is a double; of those beyond, Arrow takes none for one.
MAX_WHOLE_DOUBLE = 2**53


class CallChecks:
    """The checks of one fold. Each returns the value as plain Python, or raises TypeError,
    ValueError or OverflowError."""

    def __init__(self, fold: KeyedFold) -> None:
        self._fold = fold
        self._state: Any = fold.state
        # The usual type of each column is looked at first: this runs for every call.
        self._states = [(NAMES.get(c.kind), c) for c in fold.state_columns]
        self._outputs = [(NAMES.get(c.kind), c) for c in fold.output_columns]

    def state(self, value: Any) -> Any:
        """The state as the next call will see it: also when it comes from a store by then."""
        if value is None:
            return None
        state = record_of(self._state, value)
        for (plain, column), item in zip(self._states, state, strict=True):
            if not is_plainly(item, plain):
                column.check(item)
        return state

    def output(self, row: Iterable[Any]) -> tuple[Any, ...]:
        """An output, or a row of a projection."""
        if not isinstance(row, tuple) and isinstance(row, NO_RECORDS):
            raise no_row(self._fold, row)
        try:
            values = zip(self._outputs, row, strict=True)
            return tuple(
                item if is_plainly(item, plain) else output_value(column, item)
                for (plain, column), item in values
            )
        except (TypeError, ValueError) as error:
            if is_row(self._fold, row):
                raise
            raise no_row(self._fold, row) from error


def is_plainly(value: Any, plain: type | None) -> bool:
    """Whether `value` is of that very type, and nothing more needs to be asked."""
    if type(value) is not plain:
        return False
    if type(value) is int:
        return MIN_INT <= value <= MAX_INT
    return type(value) is not str or value.isascii()


def output_value(column: Column, value: Any) -> Any:
    """One value of an output's column, as it is stored."""
    return column.shape.stored(_as_declared(column.shape, value), f"output {column.name}")


def _as_declared(shape: Shape, value: Any) -> Any:
    """A value of another library, or a whole number for a double, as what it stands for; others as they are."""
    if isinstance(shape, Items):
        is_list = isinstance(value, (list, tuple, set)) or hasattr(value, "__array__")
        return tuple(_as_declared(shape.item, item) for item in value) if is_list else value
    plain = int if isinstance(shape, Moment) and shape.is_count else getattr(shape, "plain", None)
    if plain is bool and type(value).__name__ in ("bool", "bool_"):  # numpy's, too
        return bool(value)
    if plain is float and isinstance(value, float):
        return float(value)
    if plain is str and isinstance(value, str):
        return str.__str__(value)
    if plain not in (int, float) or isinstance(value, bool) or not hasattr(value, "__index__"):
        return value
    whole = index(value)
    return float(whole) if plain is float and abs(whole) <= MAX_WHOLE_DOUBLE else whole
