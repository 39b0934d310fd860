"""Sessions of users: one row for each session, when a gap without events has closed it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from include.fold.definition import KeyedFold, flat_map_groups_with_state
from include.fold.group_state import GroupState, span_us
from include.fold.records import Instant
from include.settings import Stream


class UserEvent(NamedTuple):
    user_id: str
    event_time_us: int


class OpenSession(NamedTuple):
    started_us: int
    last_us: int
    events: int


class UserSession(NamedTuple):
    user_id: str
    session_start: Instant
    session_end: Instant
    events: int


def define(*, gap: timedelta) -> KeyedFold:
    """The fold for one entry's settings."""
    gap_us = span_us("gap", gap)

    def close_after_gap(
        user_id: str, events: Iterator[UserEvent], state: GroupState[OpenSession]
    ) -> Iterator[UserSession]:
        """The session that ends here, if one does."""
        session = state.getOption
        for event in events:
            now_us = event.event_time_us
            # At the very end of the gap the event comes before the timeout. It begins a new
            # session; Spark's session_window would count it to the old one.
            if session is not None and now_us - session.last_us >= gap_us:
                yield closed(user_id, session)
                session = None
            started_us, count = (session.started_us, session.events) if session else (now_us, 0)
            session = OpenSession(started_us, now_us, count + 1)
            state.update(session)
            state.setTimeoutTimestamp(timestampUs=now_us + gap_us)
        if state.hasTimedOut:
            yield closed(user_id, state.get)
            state.remove()

    return flat_map_groups_with_state(
        close_after_gap,
        key="user_id",
        event=UserEvent,
        state=OpenSession,
        output=UserSession,
        output_mode="append",
        timeout="EventTimeTimeout",
    )


def closed(user_id: str, session: OpenSession) -> UserSession:
    return UserSession(
        user_id, Instant(session.started_us), Instant(session.last_us), session.events
    )


STREAM = Stream(
    source="user_events",
    schedule="0 * * * *",
    watermark_delay=timedelta(minutes=10),
    fold=define,
    settings={"gap": timedelta(minutes=30)},
    comments={
        "user_id": "The user",
        "session_start": "Time of the session's first event, UTC",
        "session_end": "Time of the session's last event, UTC",
        "events": "Events in the session",
    },
)
