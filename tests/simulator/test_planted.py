"""Bugs that were never there are found all the same: a few by a short sequence, each by a seed."""

from dataclasses import dataclass
from typing import Any

import pytest

from include.settings import Source
from tests.simulator.auditor import WrongError
from tests.simulator.kinds import INT, TEXT
from tests.simulator.operations import Operations
from tests.simulator.planted import PLANTED, planted
from tests.simulator.sequences import FINDS, Sequence, one_more_run
from tests.simulator.shapes import FLAT, Shape
from tests.simulator.simulate import find
from tests.simulator.world import GROUPED, SOURCE, open_world

SEEDS = range(1, 13)  # docs/coverage.md says which of them finds what
KINDS_OF_TEXT = (TEXT, INT)


def an_event_at_the_end_of_a_state(do: Operations) -> None:
    for beside_us in (1, 0):
        do.land_in_time("a", [0], 1)
        do.land_on_edge("a", 1, edge=0, beside_us=beside_us)
    one_more_run(do, "b")


def a_reseed_while_timers_wait(do: Operations) -> None:
    do.land_in_time("a", [0], 1)
    do.pass_time(15)
    do.land_in_time("b", [0], 1)
    do.run(None)
    do.savepoint(None)
    do.reseed(None)
    one_more_run(do, "b", wait=60)


def rows_at_one_instant(do: Operations) -> None:
    do.land_in_time("a", [0], 1)
    for values in ([3, 2, 1, 0], [2, 0, 3]):
        do.land_tied("a", values)
    one_more_run(do, "b")


def values_that_no_event_can_repeat(do: Operations) -> None:
    for _ in range(2):
        one_more_run(do)
        do.savepoint(None)


def a_key_that_is_behind(do: Operations) -> None:
    do.land_in_time("a", [9], 1)
    do.land_in_time("b", [0], 1)


def a_stream_that_asks_for_more(do: Operations) -> None:
    one_more_run(do)
    do.deploy("c")
    do.recompute_all(None)


@dataclass(frozen=True)
class Case:
    sequence: Sequence
    shape: Shape = FLAT
    source: Source = SOURCE


CASES = {
    "ttl-late": Case(an_event_at_the_end_of_a_state, Shape(ttl=25)),
    "ttl-early": Case(an_event_at_the_end_of_a_state, Shape(ttl=25)),
    "timers-lost-in-savepoint": Case(a_reseed_while_timers_wait, Shape(timers=(25, 25))),
    "order-of-ties": Case(rows_at_one_instant, Shape(KINDS_OF_TEXT, kept=(("lasts", 0),))),
    "seen-not-bounded": Case(values_that_no_event_can_repeat, Shape((INT,), by=(0,), within=3)),
    "groups-newest": Case(a_key_that_is_behind, source=GROUPED),
    "rescued-lost": Case(a_stream_that_asks_for_more, Shape(late_value=True)),
}


def check(case: Case) -> None:
    opened: Any = open_world(source=case.source, shape=case.shape)
    operations = Operations("counts", opened=opened)
    try:
        case.sequence(operations)
    finally:
        operations.close()


@pytest.mark.parametrize("plant", CASES)
def test_a_short_sequence_finds_a_planted_bug_and_nothing_else(plant):
    check(CASES[plant])
    with planted(plant), pytest.raises(WrongError):
        check(CASES[plant])


@pytest.mark.full
@pytest.mark.parametrize("plant", [plant for plant in PLANTED if plant not in FINDS])
def test_a_seed_finds_a_planted_bug(plant):
    seed, actions = find(plant, SEEDS)
    assert seed is not None, f"{actions:,} actions have not found it"
