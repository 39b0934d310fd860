"""Users whose streak of sessions is their longest so far: one row for each that has at least LENGTH."""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from include.fold.definition import flat_map_groups_with_state
from include.fold.group_state import GroupState
from include.settings import Stream

LENGTH = 5


class Streak(NamedTuple):
    user_id: str
    event_time_us: int
    sessions: int


class Longest(NamedTuple):
    sessions: int


class Record(NamedTuple):
    user_id: str
    sessions: int
    before: int


def alert_longest(
    user_id: str, streaks: Iterator[Streak], longest: GroupState[Longest]
) -> Iterator[Record]:
    """An alert if this streak is longer than all before."""
    before = longest.get.sessions if longest.exists else 0
    for streak in streaks:
        if streak.sessions >= max(LENGTH, before + 1):
            yield Record(user_id, streak.sessions, before)
        before = max(before, streak.sessions)
    longest.update(Longest(before))


STREAM = Stream(
    source="streaks",
    schedule="10 * * * *",
    watermark_delay=timedelta(0),
    fold=flat_map_groups_with_state(
        alert_longest,
        key="user_id",
        event=Streak,
        state=Longest,
        output=Record,
        output_mode="append",
    ),
    comments={
        "user_id": "The user",
        "sessions": "Sessions in the streak",
        "before": "Sessions in the longest streak before it; 0: there was none",
    },
)
