"""Which entry of a ledger an instant of the table is of."""

from itertools import pairwise

from hypothesis import given

from include.coverage.entries import BEGINNING_US, segments_of
from tests.coverage.ledgers import TICKS, entry, entry_at, ledgers
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


def test_a_reseed_takes_away_what_is_after_it_and_a_recompute_does_not():
    live = entry(1, "live", None, 9)
    spans = [
        [(s.from_us, s.until_us, s.entry.kind) for s in segments_of([live, other])]
        for other in (entry(2, "recompute", 2, 4), entry(2, "reseed", 2, 4))
    ]
    before = (BEGINNING_US, 2, "live")
    assert spans[0] == [before, (2, 4, "recompute"), (4, 9, "live")]
    assert spans[1] == [before, (2, 4, "reseed")]


def test_a_live_entry_that_grows_does_not_override_a_later_recompute():
    recompute = entry(2, "recompute", 2, 4)
    for until in (5, 7):
        segments = segments_of([entry(1, "live", None, until), recompute])
        assert [(s.from_us, s.until_us) for s in segments][1:] == [(2, 4), (4, until)]
