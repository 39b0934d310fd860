"""Bugs that were never there are found all the same: each by a short sequence."""

from typing import Any

import pytest

from include.coverage.live import RowCountError
from tests.simulator.auditor import WrongError
from tests.simulator.operations import Operations
from tests.simulator.planted import PLANTED, planted
from tests.simulator.planted_sequences import CASES, Case
from tests.simulator.world import open_world

QUICK = ("ttl-late", "timers-by-declaration", "order-of-ties", "groups-newest", "log-by-number")


def check(case: Case) -> None:
    opened: Any = open_world(source=case.source, shape=case.shape)
    operations = Operations("counts", opened=opened)
    try:
        case.sequence(operations)
    finally:
        operations.close()


@pytest.mark.parametrize(
    "plant", [pytest.param(p, marks=() if p in QUICK else pytest.mark.full) for p in CASES]
)
def test_a_short_sequence_finds_a_planted_bug_and_nothing_else(plant):
    check(CASES[plant])
    with planted(plant), pytest.raises((WrongError, RowCountError)):
        check(CASES[plant])


def test_each_bug_that_never_was_has_its_sequence():
    assert set(CASES) == {plant for plant in PLANTED if not plant.startswith("L")}
