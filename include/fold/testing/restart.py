"""A restart: states go through what stores them, and come back."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from include.fold.definition import Key, KeyedFold
from include.fold.schemas import arrow_schema
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
    schema = arrow_schema(fold.state_columns)
    columns = zip(*states.values(), strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    read = zip(*(array.to_pylist() for array in arrays), strict=True)
    return {
        key: fold.state(*(tuple(v) if isinstance(v, list) else v for v in values))
        for key, values in zip(states, read, strict=True)
    }
