"""A running count of events per user: one row per user, updated in place."""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from include.fold.definition import map_groups_with_state
from include.fold.group_state import GroupState
from include.settings import Stream


class UserEvent(NamedTuple):
    user_id: str
    event_time_us: int


class Total(NamedTuple):
    total_count: int


class UserCount(NamedTuple):
    user_id: str
    total_count: int


def update_count_per_user(
    user_id: str, events: Iterator[UserEvent], state: GroupState[Total]
) -> UserCount:
    """The user's count after these events."""
    before = state.get.total_count if state.exists else 0
    total = Total(before + sum(1 for _ in events))
    state.update(total)
    return project(user_id, total)


def project(user_id: str, total: Total) -> UserCount:
    return UserCount(user_id, total.total_count)


FOLD = map_groups_with_state(
    update_count_per_user,
    key="user_id",
    event=UserEvent,
    state=Total,
    output=UserCount,
    output_mode="update",
    project=project,
)
STREAM = Stream(
    source="user_events",
    schedule="0 * * * *",
    watermark_delay=timedelta(minutes=10),
    fold=FOLD,
    comments={"user_id": "Key: the user", "total_count": "Events of the user so far"},
)
