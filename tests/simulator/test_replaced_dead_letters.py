"""Dead letters after reseeds that were cut off, behind backfills, and put back from copies."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from include.plans.stream_status import stream_status
from tests.simulator.operations import Operations
from tests.simulator.sequences import REPLACED, SWITCH, one_more_run, ordinary_days
from tests.simulator.steps import all_rows
from tests.simulator.stream_files import KINDS
from tests.simulator.test_dead_letters import failing

FAILS = 3  # the value that variant e raises for


@contextmanager
def two_days(kind: str) -> Iterator[Operations]:
    """A stream that keeps dead letters, of two days without a late row or a failed call."""
    do = Operations(kind, on_error="dead_letter")
    try:
        do.deploy("e")
        ordinary_days(do, 2)
        yield do
    finally:
        do.close()


def fail_late(do: Operations, hours: int = 20) -> None:
    do.land_late("a", [hours], FAILS)
    do.land_late("a", [hours - 1], 1)
    do.run(None)


def check(do: Operations, calls: int) -> None:
    """All failed calls are in `dead_letters/<stream>`, and nothing else."""
    expected = failing(do.world, do.kind, all_rows(do.world))
    assert expected.total() == calls
    assert do.world.dead_letters(do.kind) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [REPLACED, SWITCH])
def test_a_reseed_keeps_what_one_that_it_overtakes_has_not_written(kind, step):
    with two_days(kind) as do:
        fail_late(do)
        with do.dying_before(step):
            do.reseed(None)
        do.reseed(None)
        do.run(None)
        check(do, 1)


def test_a_reseed_puts_back_what_a_rewind_that_it_overtakes_took_away():
    with two_days("counts") as do:
        one_more_run(do, "a", FAILS)
        with do.dying_before(SWITCH):
            do.rewind(None, ago=20)
        with do.dying_before(REPLACED):
            do.reseed(None)
        do.reseed(None)
        check(do, 1)


@pytest.mark.parametrize("step", [REPLACED, SWITCH])
def test_a_rewind_that_takes_only_dead_letters_away_is_made_good_by_the_next_reseed(step):
    with two_days("counts") as do:
        do.reseed(None)
        do.run(None)
        one_more_run(do, "a", FAILS)
        with do.dying_before(step):
            do.rewind(None, ago=1)
        do.reseed(None)
        check(do, 1)


def test_what_a_backfill_that_died_has_put_in_the_place_of_dead_letters_is_put_back():
    with two_days("counts") as do:
        one_more_run(do, "a", FAILS)
        one_more_run(do, "b", 1)
        do.deploy("a")  # it fails for none
        with do.dying_before("tests.simulator.local_engine.LocalProduct.replace"):
            do.backfill(ago=24, span=24, kill=None)
        assert not do.world.dead_letters(do.kind)
        do.deploy("e")
        do.run(None)
        check(do, 1)
        assert stream_status(do.world.lake, do.stream).findings == []
