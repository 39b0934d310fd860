"""A machine with named timers: its transitions are drawn, too."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hypothesis import strategies as st

from include.fold.definition import KeyedFold
from include.fold.group_state import GroupState
from tests.fold.failing_machine import PoisonError
from tests.fold.machine import (
    MARKS,
    NODES,
    TIMEOUT,
    At,
    Machine,
    Mark,
    Seen,
    Step,
    a_machine,
    a_way,
    fold_of,
    place_of,
)
from tests.fold.oracle import Called, Failed, Moment

NAMES = ("zeta", "alpha", "midway")  # declared in an order that is not theirs
CODES: Mapping[Any, int] = {0: 0, 1: 1, None: 2, TIMEOUT: 3, "zeta": 5, "alpha": 6, "midway": 7}


class Action(NamedTuple):
    """A change of a timer: set so far ahead, or deleted."""

    name: str
    ahead_us: int | None


@dataclass(frozen=True)
class TimerMachine(Machine):
    """`actions` are those of each cause at each node; `failures` the calls that raise at their end."""

    actions: Mapping[tuple[Any, int | None], tuple[Action, ...]]
    failures: frozenset[tuple[Any, int | None]]

    def __call__(self, key: str, marks: Iterator[Mark], state: GroupState[At]) -> Iterator[Seen]:
        at = state.get.node if state.exists else None
        if state.timer is None:
            marks = iter(list(marks))
            first = next(marks, None)
            cause = TIMEOUT if state.hasTimedOut else first.mark
            assert (first is None) == state.hasTimedOut
            given = [] if first is None else [first]
            yield from super().__call__(key, iter(given), state)
        else:
            assert not state.hasTimedOut
            assert not list(marks)
            assert state.timer not in state.timers
            cause = state.timer
            yield from self._take(key, cause, state.clock_us, state)
        self._act(state, self.actions.get((cause, at), ()))
        if (cause, at) in self.failures:
            raise PoisonError("after all that")

    def _act(self, state: GroupState[At], actions: Sequence[Action]) -> None:
        for name, ahead_us in actions:
            if ahead_us is None:
                state.deleteTimer(name)
            else:
                state.setTimer(name, timestampUs=state.clock_us + ahead_us)
                assert state.timers[name] == state.clock_us + ahead_us

    @staticmethod
    def _after(step: Step, cause: Any, time_us: int, before: At | None) -> At | None:
        if step.node is None:
            return None
        trace = before.trace if before is not None else 0
        return At(step.node, (trace * 31 + time_us * 8 + CODES[cause]) % 2**31)

    def call(self, moment: Moment) -> Called | Failed:
        """For the oracle."""
        if place_of(moment) in self.failures:
            return Failed()
        timers = dict(moment.timers)
        for name, ahead_us in self.actions.get(place_of(moment), ()):
            timers.pop(name, None)
            if ahead_us is not None:
                timers[name] = moment.clock_us + ahead_us
        return super().call(moment)._replace(timers=timers)


def a_timer_machine(rng: random.Random, timeout: str, fails: bool) -> TimerMachine:
    base, steps = a_machine(rng, timeout), {}
    for name in NAMES:
        for node in NODES:
            way = a_way(rng, TIMEOUT, timeout)
            steps[name, node] = Step(rng.choice(NODES), rng.choice([0, 1, 2]), way, False)
    every = {**base.steps, **steps}
    actions = {at: some_actions(rng, at[0]) for at in every}
    failed = [at for at in every if fails and rng.random() < 0.25]
    return TimerMachine(every, timeout, actions, frozenset(failed))


def some_actions(rng: random.Random, cause: Any) -> tuple[Action, ...]:
    """Draw actions; a timeout or timer sets nothing that fires soon: it would go on for very long."""
    spans = [4_999, 5_000, 12_000] if cause not in MARKS else [1, 999, 1_000, 5_000, 5_001, 30_000]
    names = rng.sample(NAMES, rng.choice([0, 1, 1, 2, 3]))
    return tuple(Action(name, rng.choice([None, *spans, *spans])) for name in names)


def timer_machines(timeout: str) -> st.SearchStrategy[TimerMachine]:
    chance = st.randoms(use_true_random=False)
    return st.builds(a_timer_machine, chance, st.just(timeout), st.booleans())


def fold_with_timers(machine: TimerMachine, mode: str) -> KeyedFold:
    """It keeps dead letters if the machine fails."""
    on_error = "dead_letter" if machine.failures else "stop"
    return replace(fold_of(machine, mode), timers=NAMES, on_error=on_error)
