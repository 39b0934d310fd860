"""A state function that does anything: its transitions are drawn, by Hypothesis or a seed.

`Machine` is the function; `Machine.call` says the same for the oracle, without a GroupState.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from include.fold.definition import KeyedFold, flat_map_groups_with_state
from include.fold.group_state import GroupState
from tests.fold.arrivals import KEYS, arrivals, happenings
from tests.fold.oracle import Called, Failed, Moment

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EAST = timezone(timedelta(hours=2))
TIMEOUT = "timeout"
MARKS = (None, 0, 1)
NODES = (None, 0, 1, 2)  # None: no state
TRACES = 2**31


class Mark(NamedTuple):
    key: str
    event_time_us: int
    mark: int | None


class At(NamedTuple):
    node: int
    trace: int  # of all calls since the state began: their causes, in order, and their clocks


class Seen(NamedTuple):
    key: str
    node: int | None
    trace: int | None


class Way(NamedTuple):
    """One way to set a timeout, and the instant that it stands for."""

    set: Callable[[GroupState[At]], None]
    instant_us: Callable[[int], int]  # of the clock


def a_datetime(state: GroupState[At], us: int, zone: Any = UTC) -> datetime:
    return (EPOCH + timedelta(microseconds=state.clock_us + us)).astimezone(zone)


def floor_ms(clock_us: int) -> int:
    return clock_us // 1_000 * 1_000


# The first ones are short: a timeout that sets such a one again would go on for very long.
SHORT_WAYS = 3
EVENT_TIME_WAYS = (
    Way(lambda s: s.setTimeoutTimestamp(timestampUs=s.clock_us + 1), lambda c: c + 1),
    Way(lambda s: s.setTimeoutTimestamp(timestampUs=s.clock_us + 999), lambda c: c + 999),
    Way(
        lambda s: s.setTimeoutTimestamp(
            additionalDuration="7 microseconds", timestampUs=s.clock_us
        ),
        lambda c: c + 7,
    ),
    Way(lambda s: s.setTimeoutTimestamp(timestampUs=s.clock_us + 1_000), lambda c: c + 1_000),
    Way(lambda s: s.setTimeoutTimestamp(timestampUs=s.clock_us + 5_001), lambda c: c + 5_001),
    Way(
        lambda s: s.setTimeoutTimestamp(s.getCurrentWatermarkMs() + 1),
        lambda c: floor_ms(c) + 1_000,
    ),
    Way(
        lambda s: s.setTimeoutTimestamp(s.getCurrentWatermarkMs(), "5 milliseconds"),
        lambda c: floor_ms(c) + 5_000,
    ),
    Way(
        lambda s: s.setTimeoutTimestamp(s.getCurrentProcessingTimeMs(), 3),
        lambda c: floor_ms(c) + 3_000,
    ),
    Way(lambda s: s.setTimeoutTimestamp(a_datetime(s, 2_500)), lambda c: c + 2_500),
    Way(lambda s: s.setTimeoutTimestamp(timestampUs=s.clock_us + 30_001), lambda c: c + 30_001),
    Way(
        lambda s: s.setTimeoutTimestamp(a_datetime(s, -1, EAST), timedelta(milliseconds=9)),
        lambda c: c + 8_999,
    ),
)
PROCESSING_TIME_WAYS = (
    Way(lambda s: s.setTimeoutDuration(durationUs=1), lambda c: c + 1),
    Way(lambda s: s.setTimeoutDuration(timedelta(microseconds=999)), lambda c: c + 999),
    Way(lambda s: s.setTimeoutDuration("7 microseconds"), lambda c: c + 7),
    Way(lambda s: s.setTimeoutDuration(1), lambda c: c + 1_000),
    Way(lambda s: s.setTimeoutDuration(5, durationUs=1), lambda c: c + 5_001),
    Way(lambda s: s.setTimeoutDuration("5 milliseconds"), lambda c: c + 5_000),
    Way(lambda s: s.setTimeoutDuration(timedelta(milliseconds=9)), lambda c: c + 9_000),
    Way(lambda s: s.setTimeoutDuration(durationUs=30_001), lambda c: c + 30_001),
)
WAYS = {
    "EventTimeTimeout": EVENT_TIME_WAYS,
    "ProcessingTimeTimeout": PROCESSING_TIME_WAYS,
    "NoTimeout": (),
}


class Step(NamedTuple):
    """The actions of the machine in one call."""

    node: int | None  # None: removes the state
    outputs: int
    way: int | None  # None: sets no timeout
    timeout_first: bool


@dataclass(frozen=True)
class Machine:
    """A state function by table: what to do for each cause at each node."""

    steps: Mapping[tuple[Any, int | None], Step]
    timeout: str

    def __call__(self, key: str, marks: Iterator[Mark], state: GroupState[At]) -> Iterator[Seen]:
        if state.hasTimedOut:
            assert list(marks) == []
            yield from self._take(key, TIMEOUT, state.clock_us, state)
        for mark in marks:
            if self.timeout != "ProcessingTimeTimeout":
                assert state.clock_us == mark.event_time_us
            yield from self._take(key, mark.mark, mark.event_time_us, state)

    def _take(self, key: str, cause: Any, time_us: int, state: GroupState[At]) -> Iterator[Seen]:
        step = self.steps[cause, state.get.node if state.exists else None]
        after = self._after(step, cause, time_us, state.getOption)
        seen = [Seen(key, *(after or (None, None)))] * step.outputs
        yield from seen[:1]
        if step.timeout_first:
            self._set_timeout(step, state)
        if after is None:
            state.remove()
        else:
            state.update(after)
        if not step.timeout_first:
            self._set_timeout(step, state)
        yield from seen[1:]

    def _set_timeout(self, step: Step, state: GroupState[At]) -> None:
        if step.way is not None:
            WAYS[self.timeout][step.way].set(state)

    @staticmethod
    def _after(step: Step, cause: Any, time_us: int, before: At | None) -> At | None:
        if step.node is None:
            return None
        trace = before.trace if before is not None else 0
        code = {TIMEOUT: 3, None: 2}.get(cause, cause)
        return At(step.node, (trace * 31 + time_us * 4 + code) % TRACES)

    def call(self, moment: Moment) -> Called | Failed:
        """For the oracle."""
        mark, before = moment.event, moment.state
        step = self.steps[place_of(moment)]
        time_us = moment.clock_us if mark is None else mark.event_time_us
        after = self._after(step, place_of(moment)[0], time_us, before)
        timeout_us = None
        if step.way is not None:
            timeout_us = WAYS[self.timeout][step.way].instant_us(moment.clock_us)
        seen = Seen(moment.key, *(after or (None, None)))
        return Called([seen] * step.outputs, after, timeout_us)


def place_of(moment: Moment) -> tuple[Any, int | None]:
    """The cause of a call, and the node at which it comes."""
    cause = moment.timer or (TIMEOUT if moment.event is None else moment.event.mark)
    return cause, None if moment.state is None else moment.state.node


def project(key: str, at: At) -> Seen:
    return Seen(key, at.node, at.trace)


def fold_of(machine: Machine, output_mode: str) -> KeyedFold:
    return flat_map_groups_with_state(
        machine,
        key="key",
        event=Mark,
        state=At,
        output=Seen,
        output_mode=output_mode,
        project=project,
        timeout=machine.timeout,
    )


STATES = st.builds(At, st.sampled_from(NODES[1:]), st.integers(0, 99))


def machines(timeout: str) -> st.SearchStrategy[Machine]:
    chance = st.randoms(use_true_random=False)
    return st.builds(a_machine, chance, st.just(timeout))


def a_machine(rng: random.Random, timeout: str) -> Machine:
    """A machine with a transition for each cause at each node."""
    causes = [*MARKS, TIMEOUT] if WAYS[timeout] else MARKS
    steps = {
        (cause, node): Step(
            rng.choice(NODES),
            rng.choice([0, 1, 1, 2]),
            a_way(rng, cause, timeout),
            rng.random() < 0.5,
        )
        for cause in causes
        for node in NODES
    }
    return Machine(steps, timeout)


def a_way(rng: random.Random, cause: Any, timeout: str) -> int | None:
    ways = range(SHORT_WAYS if cause == TIMEOUT else 0, len(WAYS[timeout]))
    return rng.choice(ways) if ways and rng.random() < 0.7 else None


MARKED = arrivals(
    happenings(lambda us, key, mark: Mark(key, us, mark), KEYS, st.sampled_from(MARKS))
)
each_kind = pytest.mark.parametrize(
    ("timeout", "mode"), [(timeout, mode) for timeout in WAYS for mode in ("append", "update")]
)
