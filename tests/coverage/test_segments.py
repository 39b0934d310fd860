"""Which entry of a record an instant of the table is of."""

from itertools import pairwise

from hypothesis import given

from include.coverage.record import segments_of
from tests.coverage.ledgers import TICKS, entry_at, ledgers
from tests.examples import examples


@examples(1_000)
@given(ledgers())
def test_each_instant_is_of_the_newest_entry_that_says_something_of_it(ledger):
    segments = segments_of(reversed(ledger))
    for tick in [-5, *range(TICKS + 2)]:
        found = [s.entry for s in segments if s.from_us <= tick < s.until_us]
        expected = entry_at(ledger, tick)
        assert found == ([] if expected is None else [expected])
    assert all(one.until_us <= other.from_us for one, other in pairwise(segments))
