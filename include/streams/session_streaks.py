"""Streaks of users: one row for each run of sessions, when no further one has come `within` the time.

Its events are the rows of user_sessions, at `emitted_at`: when a session's gap was over.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from include.fold.definition import KeyedFold, flat_map_groups_with_state
from include.fold.group_state import GroupState, span_us
from include.fold.records import Instant
from include.settings import Stream


class Session(NamedTuple):
    user_id: str
    event_time_us: int
    session_start: Instant


class OpenStreak(NamedTuple):
    started_us: int
    sessions: int


class Streak(NamedTuple):
    user_id: str
    streak_start: Instant
    sessions: int


def define(*, within: timedelta) -> KeyedFold:
    """The fold for one entry's settings."""
    within_us = span_us("within", within)

    def end_streak(
        user_id: str, sessions: Iterator[Session], state: GroupState[OpenStreak]
    ) -> Iterator[Streak]:
        """The streak that ends here, if one does."""
        if state.hasTimedOut:
            yield Streak(user_id, Instant(state.get.started_us), state.get.sessions)
            state.remove()
        for session in sessions:
            started_us, count = state.getOption or (session.session_start, 0)
            state.update(OpenStreak(started_us, count + 1))
            state.setTimeoutTimestamp(timestampUs=session.event_time_us + within_us)

    return flat_map_groups_with_state(
        end_streak,
        key="user_id",
        event=Session,
        state=OpenStreak,
        output=Streak,
        output_mode="append",
        timeout="EventTimeTimeout",
    )


STREAM = Stream(
    source="sessions",
    schedule="5 * * * *",
    watermark_delay=timedelta(0),
    fold=define,
    settings={"within": timedelta(hours=2)},
    comments={
        "user_id": "The user",
        "streak_start": "Time of the first event of its first session, UTC",
        "sessions": "Sessions in the streak",
    },
)
