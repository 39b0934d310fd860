"""The mapping of single states: what carries over, and what is said of a mapping that is wrong."""

from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import NEVER_US
from include.fold.definition import KeyedFold, flat_map_groups_with_state
from include.fold.group_state import TIMERS, timers_column
from include.fold.states import KeyState, MigrationError, States, migrated
from tests.fold.arrivals import timers_in
from tests.simulator.local_engine import LocalEngine


class Seen(NamedTuple):
    user: str


class Old(NamedTuple):
    count: int  # type: ignore[assignment]
    days: tuple[int, ...]


class New(NamedTuple):
    count: int  # type: ignore[assignment]
    days: tuple[int, ...]
    mean: float
    note: str | None


def fold_with(state: type, timeout: str = "EventTimeTimeout") -> KeyedFold:
    return flat_map_groups_with_state(
        lambda key, events, group: iter(()),
        key="user",
        event=Seen,
        state=state,
        output=Seen,
        output_mode="append",
        timeout=timeout,
    )


def rows(known: list[KeyState]) -> pa.RecordBatch:
    """The rows of a savepoint of the old state."""
    fold = fold_with(Old)
    states = States(fold)
    for one in known:
        states.put(*one)
    table = states.rows()
    return pa.RecordBatch.from_arrays(
        [c.combine_chunks() for c in table.columns], table.schema.names
    )


def to_new(old):
    return New(old["count"], old["days"], old["count"] / 2, None)


@pytest.mark.parametrize("names", [("b", "a"), ("a", "b", "c"), ("b",), ("c",), ()])
def test_timers_are_kept_by_their_names(names):
    old = replace(fold_with(Old), timers=("a", "b"))
    states = States(old)
    made = timers_column(old.timers).shape.record
    for key, timers in {"both": (1, 2), "one": (None, 3), "none": None}.items():
        states.put(key, Old(1, ()), 5)
        states.put_extra(TIMERS, key, timers and made(*timers))
    fold = replace(fold_with(New), timers=names)
    (batch,) = states.rows().combine_chunks().to_batches()
    found = migrated(batch, fold, to_new)
    known = {"both": {"a": 1, "b": 2}, "one": {"b": 3}, "none": {}}
    retained = {key: {n: at for n, at in of.items() if n in names} for key, of in known.items()}
    assert timers_in(States(fold, found)) == {key: of for key, of in retained.items() if of}
    assert LocalEngine().migrated(states.rows(), fold, to_new) == found


INSTANTS = st.integers(0, 2**53)
STATES = st.builds(Old, st.integers(-(2**63), 2**63 - 1), st.lists(st.integers(0, 9)).map(tuple))
KNOWN = st.dictionaries(st.text(max_size=3), st.tuples(st.none() | STATES, INSTANTS, INSTANTS))


@given(KNOWN, st.booleans())
def test_key_timeout_and_last_change_carry_over(known, times_out):
    old = [KeyState(key, *of_key) for key, of_key in known.items()]
    fold = fold_with(New, "EventTimeTimeout" if times_out else "NoTimeout")
    new = {one.key: one for one in States(fold, migrated(rows(old), fold, to_new))}
    # Without timeouts a key that has only one is no more.
    assert new.keys() == {one.key for one in old if times_out or one.state is not None}
    for one in (one for one in old if one.key in new):
        assert new[one.key].timeout_at_us == (one.timeout_at_us if times_out else NEVER_US)
        if one.state is None:
            assert new[one.key].state is None
        else:
            assert new[one.key].state == to_new(one.state._asdict())
            assert new[one.key].changed_at_us == one.changed_at_us


@pytest.mark.parametrize(
    "migrate",
    [
        lambda old: New(old["total"], (), 0.0, None),
        lambda old: None,
        lambda old: Old(**old),
        lambda old: New(1, (), 1, None),
        lambda old: New(2**63, (), 1.0, None),
        lambda old: New(1, (), 1.0, "\ud800"),
    ],
)
def test_a_wrong_mapping_is_refused(migrate):
    batch = rows([KeyState("ann", Old(3, (1, 2)), 5, NEVER_US)])
    with pytest.raises(MigrationError):
        migrated(batch, fold_with(New), migrate)
