"""Functions that keep the law, and look as if they did not: `check_fold` must let them pass."""

import logging
import random
from datetime import timedelta
from functools import lru_cache
from typing import Any

from include.fold.definition import KeyedFold, flat_map_groups_with_state, map_groups_with_state
from tests.fold.planted import (
    APPEND,
    KINDS,
    NOTHING,
    SPENDING,
    Kinds,
    Spent,
    project,
    project_kinds,
    retained_in,
    spent_by,
)

LOG = logging.getLogger(__name__)
RIGHT: dict[str, KeyedFold] = {}


def is_right(settings: dict[str, Any], make: Any = flat_map_groups_with_state) -> Any:
    return retained_in(RIGHT, settings, make)


@is_right(SPENDING, map_groups_with_state)
def add_purchases(user_id, purchases, state):
    total, count = state.getOption or NOTHING
    for purchase in purchases:
        total, count = total + purchase.value, count + 1
    return spent_by(user_id, state, total, count)


@is_right(KINDS, map_groups_with_state)
def sorted_set(user_id, purchases, state):
    kinds = {*(state.get.kinds if state.exists else ()), *(p.event_type for p in purchases)}
    state.update(Kinds(tuple(sorted(kinds))))
    return project_kinds(user_id, state.get)


@lru_cache
def worth(event_type: str) -> int:
    return len(event_type)


@is_right(APPEND)
def cache_of_a_pure_function(user_id, purchases, state):
    for purchase in purchases:
        yield spent_by(user_id, state, purchase.value, worth(purchase.event_type))


@is_right(APPEND)
def random_by_the_event(user_id, purchases, state):
    for purchase in purchases:
        if random.Random(purchase.event_time_us).random() < 0.5:
            yield spent_by(user_id, state, purchase.value, 1)


@is_right(APPEND)
def writes_a_log(user_id, purchases, state):
    for purchase in purchases:
        LOG.warning("%s bought", user_id)
        yield spent_by(user_id, state, purchase.value, 1)


def limited(limit: int, span: timedelta) -> KeyedFold:
    span_us = span // timedelta(microseconds=1)

    def is_above(count: int) -> bool:
        return count > limit

    def rows_above_a_limit(user_id, purchases, state):
        total, count = state.getOption or NOTHING
        for purchase in purchases:
            total, count = total + purchase.value, count + 1
            state.update(Spent(total, count))
            state.setTimeoutTimestamp(timestampUs=purchase.event_time_us + span_us)
            if is_above(count):
                yield project(user_id, state.get)
        if state.hasTimedOut:
            state.remove()

    return flat_map_groups_with_state(
        rows_above_a_limit, **{**APPEND, "timeout": "EventTimeTimeout"}
    )


RIGHT["rows_above_a_limit"] = limited(1, timedelta(minutes=5))
