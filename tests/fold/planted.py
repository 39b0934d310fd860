"""Copies of the shipped functions, each with one bug. Those in right_folds.py only look like it."""

import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from include.fold.definition import KeyedFold, flat_map_groups_with_state, map_groups_with_state
from include.fold.group_state import GroupState
from include.streams.service_health import Health, HealthChange, LogLine
from include.streams.user_sessions import OpenSession, UserSession, closed

GAP_US = 1_800_000_000


class Purchase(NamedTuple):
    user_id: str
    event_time_us: int
    event_type: str
    value: float


class Spent(NamedTuple):
    total: float
    count: int


class Spending(NamedTuple):
    user_id: str
    total: float
    number: int


class Kinds(NamedTuple):
    kinds: tuple[str, ...]


class KindsOfUser(NamedTuple):
    user_id: str
    kinds: tuple[str, ...]


NOTHING = Spent(0.0, 0)
Function = Callable[[Any, Iterator[Any], GroupState[Any]], Any]
WRONG: dict[str, KeyedFold] = {}


def project(user_id: str, spent: Spent) -> Spending:
    return Spending(user_id, spent.total, spent.count)


def project_kinds(user_id: str, kinds: Kinds) -> KindsOfUser:
    return KindsOfUser(user_id, kinds.kinds)


SPENDING = {
    "key": "user_id",
    "event": Purchase,
    "state": Spent,
    "output": Spending,
    "output_mode": "update",
    "project": project,
}
KINDS = {**SPENDING, "state": Kinds, "output": KindsOfUser, "project": project_kinds}
APPEND = {**SPENDING, "output_mode": "append"}
SESSIONS = {**APPEND, "state": OpenSession, "output": UserSession, "timeout": "EventTimeTimeout"}
HEALTH = {
    "key": "service",
    "event": LogLine,
    "state": Health,
    "output": HealthChange,
    "output_mode": "append",
    "timeout": "ProcessingTimeTimeout",
}


def is_wrong(settings: dict[str, Any], make: Any = flat_map_groups_with_state) -> Any:
    return retained_in(WRONG, settings, make)


def retained_in(folds: dict[str, KeyedFold], settings: dict[str, Any], make: Any) -> Any:
    def keep(function: Function) -> Function:
        folds[function.__name__] = make(function, **settings)
        return function

    return keep


def spent_by(user_id: str, state: GroupState[Spent], total: float, count: int) -> Spending:
    state.update(Spent(total, count))
    return project(user_id, Spent(total, count))


CACHE: dict[str, Spent] = {}
LAST: list[GroupState[Spent]] = []


@is_wrong(SPENDING, map_groups_with_state)
def module_level_cache(user_id, purchases, state):
    total, count = CACHE.get(user_id) or state.getOption or NOTHING
    for purchase in purchases:
        total, count = total + purchase.value, count + 1
    CACHE[user_id] = Spent(total, count)
    return spent_by(user_id, state, total, count)


@is_wrong(APPEND)
def mutable_default(user_id, purchases, state, seen=[]):  # noqa: B006
    for purchase in purchases:
        seen.append(purchase)
        yield spent_by(user_id, state, purchase.value, len(seen))


@is_wrong(APPEND)
def group_state_of_another_call(user_id, purchases, state):
    total, count = LAST[0].getOption or NOTHING if LAST else NOTHING
    LAST[:] = [state]
    for purchase in purchases:
        yield spent_by(user_id, state, total + purchase.value, count + 1)


@is_wrong(APPEND)
def wall_clock(user_id, purchases, state):
    for purchase in purchases:
        yield spent_by(user_id, state, purchase.value, time.time_ns() // 1_000)


@is_wrong(APPEND)
def date_of_today(user_id, purchases, state):
    for purchase in purchases:
        happened = datetime.fromtimestamp(purchase.event_time_us / 1e6, UTC).date()
        yield spent_by(user_id, state, purchase.value, int(happened < date.today()))  # noqa: DTZ011


@is_wrong(APPEND)
def sampled_at_random(user_id, purchases, state):
    for purchase in purchases:
        if random.random() < 0.5:
            yield spent_by(user_id, state, purchase.value, 1)


@is_wrong(KINDS, map_groups_with_state)
def arrival_order_among_ties(user_id, purchases, state):
    known = state.get.kinds if state.exists else ()
    ordered = sorted(purchases, key=lambda purchase: (purchase.event_time_us, id(purchase)))
    state.update(Kinds((*known, *(purchase.event_type for purchase in ordered))))
    return project_kinds(user_id, state.get)


@is_wrong(SPENDING, map_groups_with_state)
def count_of_calls(user_id, purchases, state):
    total, count = state.getOption or NOTHING
    for purchase in purchases:
        total += purchase.value
    return spent_by(user_id, state, total, count + 1)


@is_wrong(SPENDING, map_groups_with_state)
def float_sum_per_call(user_id, purchases, state):
    total, count = state.getOption or NOTHING
    values = [purchase.value for purchase in purchases]
    return spent_by(user_id, state, total + sum(values), count + len(values))


@is_wrong(SPENDING, map_groups_with_state)
def only_the_first_event(user_id, purchases, state):
    total, count = state.getOption or NOTHING
    return spent_by(user_id, state, total + next(purchases).value, count + 1)


@is_wrong(SPENDING, map_groups_with_state)
def row_of_the_call_alone(user_id, purchases, state):
    total, count = state.getOption or NOTHING
    for purchase in purchases:
        total, count = purchase.value, count + 1
    spent_by(user_id, state, total, count)
    return Spending(user_id, total, 1)


@is_wrong(APPEND)
def division_by_a_value(user_id, purchases, state):
    for purchase in purchases:
        yield spent_by(user_id, state, 1 / purchase.value, 1)


@is_wrong(SESSIONS)
def timeout_not_set_again(user_id, events, state):
    session = state.getOption
    for event in events:
        now_us = event.event_time_us
        if session is None:
            session = OpenSession(now_us, now_us, 0)
            state.setTimeoutTimestamp(timestampUs=now_us + GAP_US)
        state.update(session._replace(last_us=now_us, events=session.events + 1))
    if state.hasTimedOut:
        yield closed(user_id, state.get)
        state.remove()


@is_wrong(SESSIONS)
def state_not_removed_on_timeout(user_id, events, state):
    if state.hasTimedOut:
        yield closed(user_id, state.get)
    for event in events:
        now_us = event.event_time_us
        started_us, _, count = state.getOption or OpenSession(now_us, now_us, 0)
        state.update(OpenSession(started_us, now_us, count + 1))
        state.setTimeoutTimestamp(timestampUs=now_us + GAP_US)


@is_wrong(HEALTH)
def silence_by_the_wall_clock(service, lines, health):
    if health.hasTimedOut:
        yield HealthChange(service, "stale")
        health.remove()
        return
    since = time.monotonic()
    health.update(Health(stale=since < 0))
    health.setTimeoutDuration("5 minutes")
