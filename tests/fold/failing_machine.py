"""A machine that fails in some of its calls, in every way in which a state function can.

`FailingMachine.call` says the same for the oracle: which calls fail, and nothing of how.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from include.fold.definition import KeyedFold
from include.fold.group_state import GroupState
from tests.fold.machine import NODES, At, Machine, Seen, a_machine, fold_of, place_of, project
from tests.fold.oracle import Called, Failed, Moment

PROJECTS_NOT = 2  # a node whose state has no row


class PoisonError(Exception):
    """The fault of an event."""


def raising(key: str, state: GroupState[At]) -> Iterator[Seen]:
    raise PoisonError("nothing done yet")
    yield


def raising_after_a_row(key: str, state: GroupState[At]) -> Iterator[Seen]:
    yield Seen(key, 1, 1)
    raise PoisonError("one row out")


def raising_after_an_update(key: str, state: GroupState[At]) -> Iterator[Seen]:
    yield Seen(key, 0, 7)
    state.update(At(0, 7))
    raise PoisonError("state updated")


def raising_after_a_removal(key: str, state: GroupState[At]) -> Iterator[Seen]:
    state.remove()
    raise PoisonError("state removed")
    yield


def leaving_what_no_column_holds(key: str, state: GroupState[At]) -> Iterator[Seen]:
    state.update(At(1, 2.5))  # type: ignore[arg-type]
    yield from ()


def leaving_no_state(key: str, state: GroupState[At]) -> Iterator[Seen]:
    state.update((1, 2, 3))  # type: ignore[arg-type]
    yield from ()


def yielding_what_no_column_holds(key: str, state: GroupState[At]) -> Iterator[Seen]:
    state.update(At(1, 5))
    yield Seen(key, "one", 5)  # type: ignore[arg-type]


def yielding_no_row(key: str, state: GroupState[At]) -> Iterator[Seen]:
    state.update(At(1, 5))
    yield (key, 1)  # type: ignore[misc]


def yielding_nothing_at_all(key: str, state: GroupState[At]) -> Any:
    state.update(At(1, 5))
    return iter([Seen(key, 1, 5), 3])


def setting_a_timeout_in_the_past(key: str, state: GroupState[At]) -> Iterator[Seen]:
    state.update(At(1, 5))
    state.setTimeoutTimestamp(timestampUs=state.clock_us)  # without timeouts it fails as well
    yield from ()


WAYS_TO_FAIL: tuple[Callable[[str, GroupState[At]], Iterator[Seen]], ...] = (
    raising,
    raising_after_a_row,
    raising_after_an_update,
    raising_after_a_removal,
    leaving_what_no_column_holds,
    leaving_no_state,
    yielding_what_no_column_holds,
    yielding_no_row,
    yielding_nothing_at_all,
    setting_a_timeout_in_the_past,
)


@dataclass(frozen=True)
class FailingMachine(Machine):
    """`failures` names the way in which the call for a cause at a node fails; the others do not."""

    failures: Mapping[tuple[Any, int | None], int]
    has_projection: bool

    def _take(self, key: str, cause: Any, time_us: int, state: GroupState[At]) -> Iterator[Seen]:
        way = self.failures.get((cause, state.get.node if state.exists else None))
        if way is not None:
            yield from WAYS_TO_FAIL[way](key, state)
            return
        yield from super()._take(key, cause, time_us, state)

    def call(self, moment: Moment) -> Called | Failed:
        """For the oracle."""
        if place_of(moment) in self.failures:
            return Failed()
        called = super().call(moment)
        after = called.state
        no_row = self.has_projection and after is not None and after.node == PROJECTS_NOT
        return Failed() if no_row else called


def failing_machines(timeout: str, output_mode: str) -> st.SearchStrategy[FailingMachine]:
    chance = st.randoms(use_true_random=False)
    return st.builds(a_failing_machine, chance, st.just(timeout), st.just(output_mode))


def a_failing_machine(rng: random.Random, timeout: str, output_mode: str) -> FailingMachine:
    """About a third of its transitions fail."""
    machine = a_machine(rng, timeout)
    failures = {at: rng.randrange(len(WAYS_TO_FAIL)) for at in machine.steps if rng.random() < 0.3}
    return FailingMachine(machine.steps, timeout, failures, output_mode == "update")


def project_some(key: str, at: At) -> Seen:
    if at.node == PROJECTS_NOT:
        raise PoisonError("no row for this state")
    return project(key, at)


def with_dead_letters(machine: FailingMachine, output_mode: str) -> KeyedFold:
    fold = fold_of(machine, output_mode)
    return replace(fold, project=project_some, on_error="dead_letter")


assert PROJECTS_NOT in NODES
# Of an initial state: nobody has looked at them before the first event.
PROJECTED_STATES = st.builds(At, st.sampled_from([0, 1]), st.integers(0, 99))
