"""Users with too many events of one kind in a short time: one row each time that it begins.

An alert is emitted by the event with which more than `limit` events of `event_type` lie
within the trailing `span`, and again only after the number has fallen back to the limit.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from include.fold.definition import KeyedFold, flat_map_groups_with_state
from include.fold.group_state import GroupState, count_of, span_us
from include.fold.records import DefinitionError, Instant
from include.settings import Stream


class UserEvent(NamedTuple):
    user_id: str
    event_time_us: int
    event_type: str


class Recent(NamedTuple):
    times_us: tuple[int, ...]  # of the watched events, never more than limit + 1


class Alert(NamedTuple):
    user_id: str
    event_type: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which a record has no use for
    span_start: Instant


def define(*, event_type: str, span: timedelta, limit: int) -> KeyedFold:
    """The fold for one entry's settings."""
    length_us, most = span_us("span", span), count_of("limit", limit, at_least=0)
    if not isinstance(event_type, str) or not event_type:
        said = f"event_type must be the name of one, not {event_type!r}"
        raise DefinitionError(said, subject="event_type")

    def alert_above_limit(
        user_id: str, events: Iterator[UserEvent], state: GroupState[Recent]
    ) -> Iterator[Alert]:
        """An alert if this event is the one that goes above the limit."""
        start_us = state.clock_us - length_us  # an event exactly a span ago is out of it
        known = state.get.times_us if state.exists else ()
        recent = tuple(time_us for time_us in known if time_us > start_us)
        for event in events:
            if event.event_type == event_type:
                if len(recent) == most:
                    yield Alert(user_id, event_type, most + 1, Instant(start_us))
                recent = (*recent, event.event_time_us)[-(most + 1) :]
        keep(state, recent)

    def keep(state: GroupState[Recent], recent: tuple[int, ...]) -> None:
        if not recent:
            state.remove()
            return
        state.update(Recent(recent))
        state.setTimeoutTimestamp(timestampUs=recent[-1] + length_us)

    return flat_map_groups_with_state(
        alert_above_limit,
        key="user_id",
        event=UserEvent,
        state=Recent,
        output=Alert,
        output_mode="append",
        timeout="EventTimeTimeout",
    )


STREAM = Stream(
    source="user_events",
    schedule="0 * * * *",
    watermark_delay=timedelta(minutes=10),
    fold=define,
    settings={"event_type": "purchase", "span": timedelta(minutes=10), "limit": 5},
    comments={
        "user_id": "The user",
        "event_type": "What the user did too often",
        "count": "Events of that type within the span, this one included",
        "span_start": "Where the trailing span begins (exclusive), UTC; it ends at emitted_at",
    },
)
