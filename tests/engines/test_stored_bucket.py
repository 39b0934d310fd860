"""A bucket in the state store: what is packed comes back, and what does not fit is refused."""

import pytest

from include.fold.failures import BrokenInvariantError
from include.fold.states import States
from include.streams.user_counts import FOLD, Total
from spark_jobs.engines.packing import to_stream
from spark_jobs.engines.state_rows import StoredBucket, packed, packed_states, unpacked_states


def test_a_large_bucket_is_stored_compressed_and_read_as_one_that_is_not():
    states = States(FOLD)
    for number in range(3_000):
        states.put(f"user {number}", Total(number % 5), 7)
    rows = states.rows()
    keys, held = packed(rows.select(["key"])), packed_states(FOLD, rows)
    plain = to_stream(rows.select(["key"])), to_stream(rows.select(["state", "changed_at_us"]))
    assert len(keys) < len(plain[0]) / 2
    assert len(held) < len(plain[1]) / 8
    for of_keys, of_states in ((keys, held), plain):
        stored = StoredBucket(0, None, rows.num_rows, 0, of_states, None)
        assert unpacked_states(FOLD, of_keys, stored).equals(rows)


@pytest.mark.parametrize("there", ["no keys", "fewer keys", "another count"])
def test_keys_and_states_that_are_not_of_one_bucket_are_refused(there):
    states = States(FOLD)
    for key in "ab":
        states.put(key, Total(1), 7)
    rows = states.rows()
    some = rows.select(["key"]).slice(0, 1 + (there != "fewer keys"))
    keys = None if there == "no keys" else packed(some)
    count = 3 if there == "another count" else 2
    stored = StoredBucket(0, None, count, 0, packed_states(FOLD, rows), None)
    with pytest.raises(BrokenInvariantError):
        unpacked_states(FOLD, keys, stored)
