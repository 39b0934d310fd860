"""The row that an update stream's table has of a key: a function of the key's state alone."""

from math import isnan
from typing import Any

from include.fold.definition import Key, KeyedFold
from include.fold.failures import function_name
from include.fold.records import DefinitionError


def project(fold: KeyedFold, key: Key, state: Any) -> Any:
    """The row of an update stream's table for a key; without state, only the key is filled."""
    if fold.project is None:
        raise DefinitionError(
            f"{function_name(fold)} is no update stream: it has no projection",
            subject=function_name(fold),
        )
    if state is not None:
        return fold.project(key, state)
    known = fold.keys.values(key)
    return tuple(known.get(column.name) for column in fold.output_columns)


def checked_projection(fold: KeyedFold, key: Key, state: Any, returned: Any) -> Any:
    """The projection of `state`, which the row that a call yielded last (or None) must be."""
    row = project(fold, key, state)
    if returned is not None and state is not None and not _is_same(returned, row):
        raise DefinitionError(
            f"it returned {returned!r}, but project() makes {row!r} of its state", subject="project"
        )
    return row


def _is_same(one: Any, other: Any) -> bool:
    """Whether both are stored alike: Python says of a NaN that it is not even itself."""
    if one == other:
        return True
    if isinstance(one, float) and isinstance(other, float):
        return isnan(one) and isnan(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if any(isinstance(one, kind) and isinstance(other, kind) for kind in (tuple, list)):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return False
