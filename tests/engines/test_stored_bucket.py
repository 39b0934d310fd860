"""A bucket in the state store: what is packed comes back, and what does not fit is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.failures import BrokenInvariantError
from include.fold.states import States
from include.streams.user_counts import FOLD, Total
from spark_jobs.engines.packing import to_stream
from spark_jobs.engines.state_rows import StoredBucket, packed_keys, packed_states, unpacked_states
from tests.fold.machine import STATES, each_kind, fold_of, machines

KEYS = st.text(max_size=3)


@each_kind
@given(data=st.data())
def test_states_come_back_from_the_store_as_they_went(data, timeout, mode):
    fold = fold_of(data.draw(machines(timeout)), mode)
    states = States(fold)
    for key, state in data.draw(st.dictionaries(KEYS, STATES)).items():
        states.put(key, state, 7)
    rows = states.rows()
    stored = StoredBucket(0, None, rows.num_rows, 0, packed_states(fold, rows), None)
    assert unpacked_states(fold, packed_keys(rows), stored).equals(rows)


def test_a_large_bucket_is_stored_compressed_and_read_as_one_that_is_not():
    states = States(FOLD)
    for number in range(3_000):
        states.put(f"user {number}", Total(number % 5), 7)
    rows = states.rows()
    keys, held = packed_keys(rows), packed_states(FOLD, rows)
    plain = to_stream(rows.select(["key"])), to_stream(rows.select(["state", "changed_at_us"]))
    assert len(keys) < len(plain[0]) / 2
    assert len(held) < len(plain[1]) / 8
    for of_keys, of_states in ((keys, held), plain):
        stored = StoredBucket(0, None, rows.num_rows, 0, of_states, None)
        assert unpacked_states(FOLD, of_keys, stored).equals(rows)


@each_kind
@given(data=st.data())
def test_what_is_fetched_put_and_removed_is_as_in_a_dict(data, timeout, mode):
    """Whatever was stored before, and in however many passes."""
    fold = fold_of(data.draw(machines(timeout)), mode)
    states, plain = States(fold), {}
    passes = st.lists(st.dictionaries(KEYS, st.none() | STATES), max_size=4)
    for changed in data.draw(passes):
        before = states.rows()["key"].to_pylist()
        states = States(fold, states.rows())
        for key, state in changed.items():
            assert states.get(key) == plain.get(key)
            states.put(key, state, 7)
            plain[key] = state
        plain = {key: state for key, state in plain.items() if state is not None}
        assert {known.key: known.state for known in states} == plain
        after = states.rows()["key"].to_pylist()
        assert sorted(after) == sorted(plain)
        # The stored keys stay as they are, and in that order, unless this says so.
        assert states.keys_changed == (set(before) != set(after))
        assert states.keys_changed or before == after


@pytest.mark.parametrize("there", ["no keys", "fewer keys", "another count"])
def test_keys_and_states_that_are_not_of_one_bucket_are_refused(there):
    states = States(FOLD)
    for key in "ab":
        states.put(key, Total(1), 7)
    rows = states.rows()
    keys = None if there == "no keys" else packed_keys(rows.slice(0, 1 + (there != "fewer keys")))
    count = 3 if there == "another count" else 2
    stored = StoredBucket(0, None, count, 0, packed_states(FOLD, rows), None)
    with pytest.raises(BrokenInvariantError):
        unpacked_states(FOLD, keys, stored)
