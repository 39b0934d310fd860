"""The row that an update stream's table has of a key: a function of the key's state alone."""

from typing import Any

from include.fold.definition import Key, KeyedFold
from include.fold.failures import function_name
from include.fold.records import DefinitionError


def project(fold: KeyedFold, key: Key, state: Any) -> Any:
    """The row of an update stream's table for a key; without state, only the key is filled."""
    if fold.project is None:
        raise DefinitionError(f"{function_name(fold)} is no update stream: it has no projection")
    if state is not None:
        return fold.project(key, state)
    known = fold.keys.values(key)
    return tuple(known.get(column.name) for column in fold.output_columns)


def checked_projection(fold: KeyedFold, key: Key, state: Any, returned: Any) -> Any:
    """The projection of `state`, which the row that a call yielded last (or None) must be."""
    row = project(fold, key, state)
    if returned is not None and state is not None and returned != row:
        raise DefinitionError(f"it returned {returned!r}, but project() makes {row!r} of its state")
    return row
