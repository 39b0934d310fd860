"""An output's table holds what its fields declare: nothing is bent to fit, nothing lost."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import LAST_INSTANT_US
from include.fold.arrow_values import checked_output, output_schema, outputs_table
from include.fold.definition import (
    EMITTED_AT_US,
    REMOVED,
    Emitted,
    KeyedFold,
    flat_map_groups_with_state,
)
from include.fold.records import FIRST_INSTANT_US, DefinitionError, Instant, columns_of
from tests.refused import refused


class Event(NamedTuple):
    key: str
    event_time_us: int


class State(NamedTuple):
    seen: int


def row_of(kind: Any) -> Any:
    return NamedTuple("Output", [("key", str), ("given", kind)])


Ints, MaybeInts = row_of(tuple[int, ...]), row_of(tuple[int, ...] | None)
Floats, Texts, Flags = (row_of(tuple[kind, ...]) for kind in (float, str, bool))
Int, Float, MaybeFloat, At, Text = map(row_of, (int, float, float | None, Instant, str))
ARRAYS = (Ints, Floats, Texts, Flags, MaybeInts)
SCALARS = (Int, Float, MaybeFloat, At, Text)


def never(key, events, state):
    yield from ()


def fold_for(output: type) -> KeyedFold:
    return flat_map_groups_with_state(
        never, key="key", event=Event, state=State, output=output, output_mode="append"
    )


def table_of(output: type, values: list) -> pa.Table:
    """A stream that rejects checks each row by itself: it rejects what the table would refuse."""
    fold, rows = fold_for(output), [output("a", value) for value in values]
    try:
        found = outputs_table(fold, Emitted(rows, [1] * len(rows), []))
    except DefinitionError:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            [checked_output(fold, row) for row in rows]
        raise
    checked = [checked_output(fold, row) for row in rows]
    again = outputs_table(fold, Emitted(checked, [1] * len(rows), []))
    assert repr(again.to_pylist()) == repr(found.to_pylist())
    return found


def given_is(output: type) -> tuple[str, bool]:
    _, column = columns_of(output)
    return column.kind.removeprefix("array<").removesuffix(">"), column.nullable


def fits(value, kind: str) -> bool:
    """True if the column can hold the value exactly."""
    if kind == "timestamp":
        return type(value) is int and FIRST_INSTANT_US <= value <= LAST_INSTANT_US
    if kind == "bigint":
        return type(value) is int and -(2**63) <= value < 2**63
    return type(value) is {"string": str, "boolean": bool, "double": float}[kind]


EDGES = [LAST_INSTANT_US, FIRST_INSTANT_US, 2**63, 2**64, 10**30]
ITEMS = st.one_of(
    st.sampled_from([0, *(edge + by for edge in EDGES for by in (-1, 0, 1))]),
    st.sampled_from([1.9, 2.5, 2.0, -0.0, float("inf"), "", "a", "1", True, False]),
    st.sampled_from([None, b"x", (1,)]),
)
# Mostly of one kind, or nearly nothing would be taken.
ALIKE = st.sampled_from([(0, 1, 2), (1, 2.5), (1.5, 2.5), ("a", "b"), (True, False), (None,)])
MOSTLY = ALIKE.flatmap(lambda kinds: st.sampled_from(kinds) | st.sampled_from(kinds) | ITEMS)


@pytest.mark.parametrize("output", [*ARRAYS, *SCALARS])
@given(data=st.data())
def test_a_value_is_held_exactly_or_refused(output, data):
    kind, nullable = given_is(output)
    items = MOSTLY
    if output in ARRAYS:
        of_one = st.sampled_from([ALIKE.flatmap(st.sampled_from), MOSTLY, ITEMS])
        tuples = st.lists(data.draw(of_one), max_size=3).map(tuple)
        items = tuples | tuples | st.none()
    values = data.draw(st.lists(items, min_size=1, max_size=4))
    right = all(
        nullable
        if value is None
        else all(fits(item, kind) for item in (value if output in ARRAYS else [value]))
        for value in values
    )
    if not right:
        with refused("wrong_definition"):
            table_of(output, values)
        return
    found = table_of(output, values)["given"].combine_chunks()
    assert found.type == output_schema(fold_for(output)).field("given").type
    found = found.cast(pa.int64()) if kind == "timestamp" else found
    expected = [list(value) if isinstance(value, tuple) else value for value in values]
    assert repr(found.to_pylist()) == repr(expected)


@pytest.mark.parametrize(
    ("output", "values"),
    [
        *[(Ints, [(1,), 2]), (Ints, [[1]]), (Ints, [{1}, 2.5]), (Float, [np.float64(1)])],
        *[(Floats, [np.array([1.5])]), (Texts, ["ab"]), (Int, [np.int64(2)]), (Float, [1])],
        *[(Text, ["\ud800"]), (Int, [True])],
    ],
)
def test_values_of_no_type_of_ours_are_refused(output, values):
    with refused("wrong_definition"):
        table_of(output, values)


@pytest.mark.parametrize(
    "row",
    [
        *[("a", 1, 2), ("a",), (), (*MaybeInts("a", (1,)), "b"), None, 1],
        *[{"key": "a", "given": (1,)}, "ab", b"ab", {"a", "b"}],
    ],
)
@pytest.mark.parametrize("rows", [[], [Ints("b", (1,))]])
def test_what_is_no_row_is_refused_with_what_it_should_have(row, rows):
    fold, emitted = fold_for(Ints), Emitted([*rows, row], [1] * (len(rows) + 1), [])
    for call in (lambda: outputs_table(fold, emitted), lambda: checked_output(fold, row)):
        with refused("wrong_definition"):
            call()


def test_a_removed_key_has_no_array():
    fold = replace(fold_for(Ints), output_mode="update", project=lambda key, state: Ints(key, ()))
    table = outputs_table(fold, Emitted([("a", None), Ints("b", (1,))], [1, 2], [True, False]))
    assert table.schema.names == ["key", "given", EMITTED_AT_US, REMOVED]
    assert table["given"].to_pylist() == [None, [1]]
