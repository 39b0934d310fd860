"""Whether what one call leaves behind can be stored: looked at call by call.

Where the first failure stops the stream this is found for a whole bucket at once, by Arrow and
by the state store. What is let through here is what they let through.
"""

from collections.abc import Iterable
from operator import index
from typing import Any

from include.fold.definition import KeyedFold
from include.fold.failures import is_row, no_row
from include.fold.records import MAX_INT, MIN_INT, NAMES, NO_RECORDS, Column, check_years, record_of

# Every whole number up to here is a double; of those beyond, Arrow takes none for one.
MAX_WHOLE_DOUBLE = 2**53
ARRAY = "array<"


class CallChecks:
    """The checks of one fold. Each returns the value as plain Python, or raises TypeError,
    ValueError or OverflowError."""

    def __init__(self, fold: KeyedFold) -> None:
        self._fold = fold
        self._state: Any = fold.state
        # The usual type of each column is looked at first: this runs for every call.
        self._states = [(NAMES.get(c.kind), c) for c in fold.state_columns]
        # As `output_schema`: a removed key's row has only the key.
        self._outputs = [
            (
                NAMES.get(c.kind),
                c,
                c.nullable or (fold.output_mode == "update" and c.name not in fold.keys.names),
            )
            for c in fold.output_columns
        ]

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
                item if is_plainly(item, plain) else output_value(column, nullable, item)
                for (plain, column, nullable), item in values
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


def output_value(column: Column, nullable: bool, value: Any) -> Any:
    """One value of an output's column, as it is stored."""
    if value is None:
        if not nullable:
            raise TypeError(f"output {column.name} is None, but is not declared `| None`")
        return None
    if not column.is_plain:
        return column.shape.stored(value, f"output {column.name}")
    if not column.kind.startswith(ARRAY):
        return _scalar(column, column.kind, value)
    if not (isinstance(value, (list, tuple, set)) or hasattr(value, "__array__")):
        raise TypeError(
            f"output {column.name} is a {type(value).__name__}, but declared {column.kind}"
        )
    element = column.kind[len(ARRAY) : -1]
    return tuple(_scalar(column, element, item) for item in value)


def _scalar(column: Column, kind: str, value: Any) -> Any:
    """`value` as plain Python: a numpy number, or a member of an enum, becomes what it stands for."""
    if kind == "double" and isinstance(value, float):  # numpy's float64 is one
        return float(value)
    if kind == "string" and isinstance(value, str):
        check_text(value)
        return str.__str__(value)
    if kind == "boolean" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    if kind in ("bigint", "timestamp", "double") and _is_whole(value):
        return _number(column, kind, index(value))
    raise TypeError(
        f"output {column.name} = {value!r} is a {type(value).__name__}, but declared {kind}"
    )


def _is_whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _number(column: Column, kind: str, value: int) -> int | float:
    if kind == "double":
        if abs(value) > MAX_WHOLE_DOUBLE:
            raise TypeError(f"output {column.name} = {value} is no double: make it a float")
        return float(value)
    if not MIN_INT <= value <= MAX_INT:
        raise TypeError(f"output {column.name} = {value} is beyond the 64 bits of a {kind}")
    if kind == "timestamp":
        check_years(value, f"output {column.name}")
    return value


def check_text(value: Any) -> None:
    """Half of a surrogate pair is a Python string, but no text: UnicodeEncodeError."""
    for text in value if isinstance(value, tuple) else (value,):
        if isinstance(text, str) and not text.isascii():
            text.encode()
