"""The row that an update function yields, beside the projection of the state it leaves."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from include.fold.definition import KeyedFold, flat_map_groups_with_state, map_groups_with_state
from include.fold.group_state import GroupState
from include.fold.records import DefinitionError
from tests.bronze import ClockAt, stamp
from tests.fold.local import LocalFold
from tests.refused import failed_call

END = ClockAt(60_000_000)


class Given(NamedTuple):
    key: str
    event_time_us: int
    value: float


class Total(NamedTuple):
    total: float


class Part(NamedTuple):
    half: float


class Means(NamedTuple):
    key: str
    mean: float
    part: Part
    halves: tuple[float, ...]
    by_name: dict[str, float]


def project(key: str, state: Total) -> Means:
    half = state.total / 2  # another NaN each time
    return Means(key, state.total, Part(half), (1.0, state.total / 3), {"half": half})


def add(key: str, given: Iterator[Given], state: GroupState[Total]) -> Means:
    for one in given:
        state.update(Total((state.get.total if state.exists else 0.0) + one.value))
    return project(key, state.get)


def lie(key: str, given: Iterator[Given], state: GroupState[Total]) -> Iterator[Means]:
    right = add(key, given, state)
    yield right._replace(halves=(2.0, math.nan))


KNOWN = {
    "key": "key",
    "event": Given,
    "state": Total,
    "output": Means,
    "output_mode": "update",
    "project": project,
}
MAPPED, FLAT = map_groups_with_state(add, **KNOWN), flat_map_groups_with_state(lie, **KNOWN)


def run(fold: KeyedFold, *values: float) -> LocalFold:
    engine = LocalFold(fold, delay_us=0)
    given = [Given("a", at_us, value) for at_us, value in enumerate(values, 1)]
    for rows in stamp([given, END]):
        engine.run_batch(rows)
    return engine


@pytest.mark.parametrize("on_error", ["stop", "dead_letter"])
@pytest.mark.parametrize("values", [[math.nan], [1.0, math.inf, -math.inf], [1.0, math.nan, 2.0]])
def test_a_nan_is_the_nan_that_the_projection_makes(values, on_error):
    engine = run(replace(MAPPED, on_error=on_error), *values)
    (row,) = engine.emitted.rows
    assert not engine.dead_letters
    assert math.isnan(row[1])
    assert math.isnan(row[3][1])


def test_a_row_that_differs_beside_a_nan_is_refused():
    with failed_call(cause=DefinitionError):
        run(FLAT, math.nan)
