"""Named timers: what a function sees of them, in which order they fire, and what is refused."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from include.fold.definition import flat_map_groups_with_state
from include.fold.group_state import GroupState
from include.fold.testing.cases import run
from tests.refused import failed_call, refused

NAMES = ("reminder", "expiry")


class Order(NamedTuple):
    user_id: str
    event_time_us: int


class Open(NamedTuple):
    orders: int


class Said(NamedTuple):
    user_id: str
    what: str


def watch(user_id, orders, state):
    """Says what it was called for; each order sets all three for 100 us later."""
    if state.hasTimedOut or state.timer is not None:
        yield Said(user_id, state.timer or "timeout")
        return
    for order in orders:
        yield Said(user_id, "order")
        state.update(Open(1))
        state.setTimer("reminder", timestampUs=order.event_time_us + 100)
        state.setTimer("expiry", timestampUs=order.event_time_us + 100)
        state.setTimeoutTimestamp(timestampUs=order.event_time_us + 100)


def fold_of(function: Any = watch, **settings: Any) -> Any:
    return flat_map_groups_with_state(
        function,
        key="user_id",
        event=Order,
        state=Open,
        output=Said,
        output_mode="append",
        **{"timeout": "EventTimeTimeout", "timers": NAMES, **settings},
    )


FOLD = fold_of()


def test_instants_are_given_as_to_a_timeout():
    state: GroupState[Open] = GroupState("ProcessingTimeTimeout", None, NAMES)
    state.begin_key(None, 5_000_000)
    state.setTimer("expiry", 6_000, "2 milliseconds")
    state.setTimer("reminder", datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC))
    assert state.timers == {"expiry": 6_002_000, "reminder": 7_000_000}
    state.deleteTimer("expiry")
    state.deleteTimer("expiry")  # nothing happens
    assert (state.timers, state.timer) == ({"reminder": 7_000_000}, None)
    with pytest.raises(ValueError):
        state.setTimer("expiry", 5_000)


def test_a_name_that_is_not_declared_is_refused():
    state: GroupState[Open] = GroupState("EventTimeTimeout", None, NAMES)
    with pytest.raises(ValueError):
        state.setTimer("expire", timestampUs=1)
    with pytest.raises(ValueError):
        state.deleteTimer("x")


def test_a_fold_without_timers_has_none():
    state: GroupState[Open] = GroupState("EventTimeTimeout")
    assert (state.timers, state.timer) == ({}, None)
    with pytest.raises(RuntimeError):
        state.setTimer("expiry", timestampUs=1)
    with pytest.raises(RuntimeError):
        state.deleteTimer("expiry")


def test_a_failure_names_the_timer():
    def fail(user_id, orders, state):
        for order in orders:
            state.setTimer("expiry", timestampUs=order.event_time_us + 1)
        yield Said(user_id, {None: "ok"}[state.timer])

    with failed_call("timer expiry at 1970", cause=KeyError):
        run(fold_of(fail), [Order("ann", 1_000)], clock=1_001)


@pytest.mark.parametrize(
    "settings",
    [
        {"timeout": "NoTimeout"},
        {"timers": ["a"]},
        {"timers": ("a b",)},
        {"timers": ("class",)},
        {"timers": ("a", "A")},
        {"timers": tuple(f"t{n}" for n in range(33))},
    ],
)
def test_what_names_no_timers_is_refused(settings):
    with refused("wrong_definition", subject="timers"):
        fold_of(**settings)
