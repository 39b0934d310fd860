"""The errors of calls that fail, and the last row of a call in an update stream."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from include.fold.definition import KeyedFold, flat_map_groups_with_state
from include.fold.group_state import GroupState
from tests.bronze import ClockAt, stamp
from tests.fold.local import LocalFold
from tests.refused import failed_call

SECOND_US = 1_000_000
END = ClockAt(60 * SECOND_US)


class Tick(NamedTuple):
    key: str
    event_time_us: int


class Ticks(NamedTuple):
    calls: int


class Row(NamedTuple):
    key: str
    calls: int


SETTINGS = {
    "key": "key",
    "event": Tick,
    "state": Ticks,
    "output": Row,
    "timeout": "EventTimeTimeout",
}


def run(fold: KeyedFold, commits: list[Any]) -> LocalFold:
    engine = LocalFold(fold, delay_us=0, buckets=2)
    for rows in stamp(commits):
        engine.run_batch(rows)
    return engine


def fail_on_timeout(state: GroupState[Ticks]) -> None:
    if state.hasTimedOut:
        raise KeyError("no such luck")
    state.setTimeoutTimestamp(timestampUs=state.clock_us + 1_500_001)


def fail_on_timer(state: GroupState[Ticks]) -> None:
    if state.timer:
        raise KeyError("no such luck")
    state.setTimer("expiry", timestampUs=state.clock_us + 1)


@pytest.mark.parametrize(
    ("act", "called", "cause"),
    [
        (lambda s: 1 / 0, "event at 1970-01-01T00:00:01.000000Z", ZeroDivisionError),
        (fail_on_timeout, "timeout at 1970-01-01T00:00:02.500001Z", KeyError),
        (fail_on_timer, "timer expiry at 1970-01-01T00:00:01.000001Z", KeyError),
        (lambda s: s.setTimeoutDuration(1), "event", RuntimeError),
        (lambda s: s.update(Ticks(1.5)), "event", TypeError),
    ],
)
def test_an_error_names_stream_function_key_and_instant(act, called, cause):
    def acting(key: str, ticks: Iterator[Tick], state: GroupState[Ticks]) -> Iterator[Row]:
        state.update(Ticks(1))
        act(state)
        yield Row(key, 1)

    fold = flat_map_groups_with_state(
        acting, **SETTINGS, output_mode="append", timers=("expiry",), stream="my_stream"
    )
    with failed_call("my_stream", "acting", "'a'", called, cause=cause):
        run(fold, [[Tick("a", SECOND_US)], END])


def yields_after_updating(ticks: Iterator[Tick], state: GroupState[Ticks]) -> Iterator[Row]:
    for tick in ticks:
        if state.exists:
            state.update(Ticks(state.get.calls + 1))
        else:
            state.update(Ticks(1))
            yield Row(tick.key, 1)


def yields_before_updating(ticks: Iterator[Tick], state: GroupState[Ticks]) -> Iterator[Row]:
    for tick in ticks:
        calls = state.get.calls + 1 if state.exists else 1
        if calls == 1:
            yield Row(tick.key, calls)
        state.update(Ticks(calls))


def yields_when_it_removes(ticks: Iterator[Tick], state: GroupState[Ticks]) -> Iterator[Row]:
    for tick in ticks:
        if tick.event_time_us == SECOND_US:
            state.remove()
            yield Row(tick.key, 0)
        else:
            state.update(Ticks(2))


@pytest.mark.parametrize("timeout", ["NoTimeout", "EventTimeTimeout"])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    "function", [yields_after_updating, yields_before_updating, yields_when_it_removes]
)
def test_an_update_function_need_not_yield_a_row_for_its_last_event(function, together, timeout):
    """It must not depend on which events are complete together."""
    fold = flat_map_groups_with_state(
        lambda key, ticks, state: function(ticks, state),
        **(SETTINGS | {"output": Row, "timeout": timeout}),
        output_mode="update",
        project=lambda key, ticks: Row(key, ticks.calls),
    )
    first, second = Tick("a", SECOND_US), Tick("a", 2 * SECOND_US)
    engine = run(fold, [[first, second]] if together else [[first], [second]])
    assert (engine.emitted.rows[-1], engine.emitted.emitted_at_us[-1]) == (
        Row("a", 2),
        2 * SECOND_US,
    )
