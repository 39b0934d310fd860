"""A machine with named timers: its transitions are drawn, too; and what the law says it comes to.

The oracle looks at all that is due of a key, and takes the least: by its instant, then events, the
timeout, the timers by name, the end of the state.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hypothesis import strategies as st

from include.fold.definition import KeyedFold
from include.fold.group_state import GroupState
from tests.bronze import StampedRow
from tests.fold import oracle
from tests.fold.failing_machine import PoisonError
from tests.fold.machine import (
    MARKS,
    NODES,
    TIMEOUT,
    WAYS,
    At,
    Machine,
    Mark,
    Seen,
    Step,
    a_machine,
    a_way,
    fold_of,
)
from tests.fold.oracle import NOTHING, Called, Failed, Known, Result

NAMES = ("zeta", "alpha", "midway")  # declared in an order that is not theirs
CODES: Mapping[Any, int] = {0: 0, 1: 1, None: 2, TIMEOUT: 3, "zeta": 5, "alpha": 6, "midway": 7}
EVENT, TIMED_OUT, TIMED, ENDED = range(4)
Timers = dict[str, int]


class Action(NamedTuple):
    """What is done with a timer: set so far ahead, or deleted."""

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

    def called(
        self, key: str, cause: Any, time_us: int, before: At | None, clock_us: int, timers: Timers
    ) -> tuple[Called | Failed, Timers]:
        """For the oracle: what a call comes to, and the timers after it."""
        at = cause, None if before is None else before.node
        if at in self.failures:
            return Failed(), timers
        step = self.steps[at]
        after = self._after(step, cause, time_us, before)
        timeout_us = None if step.way is None else self._instant_us(step, clock_us)
        set_now = dict(timers)
        for name, ahead_us in self.actions.get(at, ()):
            set_now.pop(name, None)
            if ahead_us is not None:
                set_now[name] = clock_us + ahead_us
        return Called(
            [Seen(key, *(after or (None, None)))] * step.outputs, after, timeout_us
        ), set_now

    def _instant_us(self, step: Step, clock_us: int) -> int:
        return WAYS[self.timeout][step.way].instant_us(clock_us)


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
    """What fires by itself sets nothing that fires soon: it would go on for very long."""
    spans = [4_999, 5_000, 12_000] if cause not in MARKS else [1, 999, 1_000, 5_000, 5_001, 30_000]
    names = rng.sample(NAMES, rng.choice([0, 1, 1, 2, 3]))
    return tuple(Action(name, rng.choice([None, *spans, *spans])) for name in names)


def timer_machines(timeout: str) -> st.SearchStrategy[TimerMachine]:
    chance = st.randoms(use_true_random=False)
    return st.builds(a_timer_machine, chance, st.just(timeout), st.booleans())


def fold_with_timers(machine: TimerMachine, mode: str) -> KeyedFold:
    """It rejects if the machine fails."""
    on_error = "quarantine" if machine.failures else "stop"
    return replace(fold_of(machine, mode), timers=NAMES, on_error=on_error)


class Expected(NamedTuple):
    result: Result
    timers: dict[Any, Timers]


def expected(
    fold: KeyedFold,
    machine: TimerMachine,
    rows: Sequence[StampedRow],
    delay_us: int,
    since_us: int | None = None,
    initial: Mapping[Any, Known] | None = None,
) -> Expected:
    """As `oracle.expected`, with timers."""
    admitted, late, excluded = oracle.admit(fold, rows, delay_us, since_us)
    until_us = oracle.until(rows, delay_us)
    by_key = defaultdict(list)
    for row in admitted:
        by_key[fold.keys.of(row.event)].append(row)
    states, timers, emitted, rejected = dict(initial or {}), {}, Counter(), Counter()
    for key in {**by_key, **states}:
        known = states.get(key, NOTHING)
        one = OneKey(fold, machine, key, known, emitted, rejected)
        one.fold(by_key[key], until_us)
        states[key], timers[key] = one.known, one.timers
    states = {key: known for key, known in states.items() if known != NOTHING}
    table = emitted if fold.output_mode == "append" else oracle.projected(fold, states)
    pending = sum(row.time_us >= until_us for row in admitted)
    result = Result(table, states, pending, late, excluded, rejected)
    return Expected(result, {key: of for key, of in timers.items() if of})


@dataclass
class OneKey:
    fold_: KeyedFold
    machine: TimerMachine
    key: Any
    known: Known
    emitted: Counter[Any]
    rejected: Counter[Any]

    def fold(self, rows: Sequence[StampedRow], until_us: int) -> None:
        self.timers: Timers = {}
        waiting = sorted(rows, key=oracle.by_time_and_whole_row)
        while due := [each for each in self._due(waiting) if each[0] < until_us]:
            at_us, kind, name = min(due)
            if kind == ENDED:
                self.known, self.timers = NOTHING, {}
                continue
            event = None
            if kind == EVENT:
                event = waiting.pop(0).event
            elif kind == TIMED_OUT:
                self.known = self.known._replace(timeout_at_us=None)
            else:
                del self.timers[name]
            self._call(
                at_us, {EVENT: event and event.mark, TIMED_OUT: TIMEOUT}.get(kind, name), event
            )

    def _due(self, waiting: Sequence[StampedRow]) -> Iterator[tuple[int, int, str]]:
        state, changed_us, timeout_us = self.known
        if waiting:
            yield waiting[0].time_us, EVENT, ""
        if timeout_us is not None:
            yield timeout_us, TIMED_OUT, ""
        for name, at_us in self.timers.items():
            yield at_us, TIMED, name
        if self.fold_.ttl is not None and state is not None:
            yield changed_us + self.fold_.ttl_us, ENDED, ""

    def _call(self, at_us: int, cause: Any, event: Mark | None) -> None:
        time_us = at_us if event is None else event.event_time_us
        called, timers = self.machine.called(
            self.key, cause, time_us, self.known.state, at_us, self.timers
        )
        if isinstance(called, Failed):
            self.rejected[oracle.Rejected(self.key, at_us, event)] += 1
            return
        self.timers = timers
        rows = (oracle.stored(self.fold_, output) for output in called.outputs)
        self.emitted.update((row, at_us) for row in rows)
        changed_us = None if called.state is None else at_us
        self.known = Known(called.state, changed_us, called.timeout_us)


def timers_in(states: Any) -> dict[Any, Timers]:
    """The same of an engine's states."""
    found = {}
    for known in states:
        stored = known.beside[-1] if known.beside else None
        if stored is not None:
            found[known.key] = {n: at for n, at in stored._asdict().items() if at is not None}
    return found
