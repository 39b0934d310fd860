"""A restart: states go through what stores them, and come back."""

from dataclasses import replace
from typing import Any

from include.fold.arrow_values import column_values, encode
from include.fold.definition import Key, KeyedFold
from include.fold.testing.run import Ran


def restarted(fold: KeyedFold, ran: Ran) -> Ran:
    """The run as the next process finds it."""
    stored = stored_and_read(fold, ran.states)
    known = {
        key: each._replace(state=stored.get(key, each.state)) for key, each in ran.known.items()
    }
    return replace(ran, known=known)


def stored_and_read(fold: KeyedFold, states: dict[Key, Any]) -> dict[Key, Any]:
    """The states by way of Arrow. Raises what Arrow does for a value that it cannot hold."""
    if not states:
        return {}
    columns = zip(fold.state_columns, zip(*states.values(), strict=True), strict=True)
    read = [column_values(column, encode(column.shape, values)) for column, values in columns]
    return dict(zip(states, map(fold.state, *read), strict=True))
