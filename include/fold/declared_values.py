"""Values that a state function has yielded, as the Arrow type that their field declares, or not.

Asked for a type, Arrow bends what it is given: 2.5 becomes 2, in lists too. So it says first
what the values are, and only then is that compared with what they should be.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from include.fold.records import MAX_INT, MIN_INT, DefinitionError
from include.fold.shapes import check_years

MAX_INT_OF_A_DOUBLE = 2**53  # not each integer beyond is a double
BOOLEANS = {bool, np.bool_}
# What Arrow raises; the last of what it knows, and has no type for.
NOT_OF_ONE_TYPE = (TypeError, ValueError, OverflowError, pa.ArrowNotImplementedError)


def declared(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """`values` as the field's type. Integers may stand for doubles, if they are equal.

    Raises DefinitionError, which names the field, for anything that this would change; for
    None where it is not declared, and for None among the items of an array.
    """
    if pa.types.is_timestamp(field.type):
        instants = declared(values, field.with_type(pa.int64()))
        _check_years(instants, field)
        return instants.cast(field.type)
    try:
        found = pa.array(values)
        if found.type != field.type:
            _check_type(found, field)
            found = found.cast(field.type)
    except NOT_OF_ONE_TYPE as error:
        if isinstance(error, DefinitionError):
            raise
        raise _refusal(field, _described(values, field)) from error
    _check_booleans(values, field)
    _check_none(found, field)
    return found


def _check_type(found: pa.Array, field: pa.Field) -> None:
    have, wanted = found.type, field.type
    if pa.types.is_list(have) and pa.types.is_list(wanted):
        have, wanted = have.value_type, wanted.value_type
    widened = pa.types.is_floating(wanted) and pa.types.is_integer(have)
    # Of None alone, or of empty arrays alone, which are of any type.
    if not (have == wanted or pa.types.is_null(have) or widened):
        raise _refusal(field, f"is {found.type}")


def _check_booleans(values: Sequence[Any], field: pa.Field) -> None:
    """Among doubles Arrow takes them for 0.0 and 1.0; alone it does not."""
    is_list = pa.types.is_list(field.type)
    if pa.types.is_floating(field.type.value_type if is_list else field.type):
        items = _items(values) if is_list else values
        if not BOOLEANS.isdisjoint(map(type, items)):
            raise _refusal(field, _described(values, field))


def _check_years(instants: pa.Array, field: pa.Field) -> None:
    first_and_last = pc.min_max(instants).as_py().values()
    try:
        for count in first_and_last:
            if count is not None:
                check_years(count, f"output {field.name}")
    except TypeError as error:
        raise DefinitionError(str(error), subject=field.name) from None


def _check_none(found: pa.Array, field: pa.Field) -> None:
    if found.null_count and not field.nullable:
        raise DefinitionError(
            f"output {field.name} is None, but is not declared `| None`", subject=field.name
        )
    if pa.types.is_list(field.type) and pc.list_flatten(found).null_count:
        raise _refusal(field, "has None among its items")


def _refusal(field: pa.Field, what: str) -> DefinitionError:
    return DefinitionError(
        f"output {field.name} {what}, but declared {field.type}", subject=field.name
    )


def _described(values: Sequence[Any], field: pa.Field) -> str:
    """What is wrong with values that Arrow has no one type for: slow, for a message."""
    if pa.types.is_list(field.type) and _types(values) <= {"list", "tuple"}:
        values, field = list(_items(values)), field.with_type(field.type.value_type)
    least, most = MIN_INT, MAX_INT
    if pa.types.is_floating(field.type):
        least, most = -MAX_INT_OF_A_DOUBLE, MAX_INT_OF_A_DOUBLE
    beyond = [value for value in values if type(value) is int and not least <= value <= most]
    if beyond:
        return f"has {beyond[0]}"
    types = sorted(_types(values))
    return f"is a mix of {' and '.join(types)}" if len(types) > 1 else f"is {' '.join(types)}"


def _types(values: Iterable[Any]) -> set[str]:
    return {type(value).__name__ for value in values if value is not None}


def _items(values: Sequence[Any]) -> Iterable[Any]:
    return chain.from_iterable(value for value in values if value is not None)
