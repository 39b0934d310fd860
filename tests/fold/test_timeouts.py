"""The calls of a state function when its state times out, one example for each rule."""

from collections.abc import Callable, Iterator
from dataclasses import replace
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


class Call(NamedTuple):
    key: str
    calls: int
    exists: bool
    timed_out: bool


Acts = Callable[[GroupState[Ticks]], Any]


def fold_of(act: Acts, output_mode: str = "append", **settings) -> KeyedFold:
    """A fold whose function says how it was called, and then does `act`."""

    def noting(key: str, ticks: Iterator[Tick], state: GroupState[Ticks]) -> Iterator[Call]:
        assert len(list(ticks)) == (0 if state.hasTimedOut or state.timer else 1)
        calls = (state.get.calls if state.exists else 0) + 1
        seen = Call(key, calls, state.exists, state.hasTimedOut)
        state.update(Ticks(calls))
        act(state)
        yield seen

    return flat_map_groups_with_state(
        noting, **(SETTINGS | settings | {"output_mode": output_mode})
    )


SETTINGS = {
    "key": "key",
    "event": Tick,
    "state": Ticks,
    "output": Call,
    "timeout": "EventTimeTimeout",
}


def run(fold: KeyedFold, *times_us: int, end: ClockAt = END) -> LocalFold:
    """One commit for each event of the key "a", and at last a heartbeat."""
    engine = LocalFold(fold, delay_us=0, buckets=2)
    for rows in stamp([*([Tick("a", time_us)] for time_us in times_us), end]):
        engine.run_batch(rows)
    return engine


def after(micros: int) -> Acts:
    return lambda state: state.setTimeoutTimestamp(timestampUs=state.clock_us + micros)


def emitted(engine: LocalFold) -> list[tuple[Any, int]]:
    return list(zip(engine.emitted.rows, engine.emitted.emitted_at_us, strict=True))


def fail_on_timeout(state: GroupState[Ticks]) -> None:
    if state.hasTimedOut:
        raise KeyError("no such luck")
    after(1_500_001)(state)


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
    fold = replace(fold_of(act, timers=("expiry",)), stream="my_stream")
    with failed_call("my_stream", "noting", "'a'", called, cause=cause):
        run(fold, SECOND_US)


class Row(NamedTuple):
    key: str
    calls: int


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
    engine = LocalFold(fold, delay_us=0)
    first, second = Tick("a", SECOND_US), Tick("a", 2 * SECOND_US)
    for rows in stamp([[first, second]] if together else [[first], [second]]):
        engine.run_batch(rows)
    assert emitted(engine)[-1] == (Row("a", 2), 2 * SECOND_US)
