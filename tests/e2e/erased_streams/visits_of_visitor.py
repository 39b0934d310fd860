"""Visits of each visitor, with the newest note; silence ends them."""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from include.fold.definition import flat_map_groups_with_state
from include.fold.group_state import GroupState
from include.settings import Deduplicate, Stream


class Visit(NamedTuple):
    visitor: str
    page: str
    note: str | None
    event_time_us: int


class Known(NamedTuple):
    visits: int
    note: str | None


class Seen(NamedTuple):
    visitor: str
    visits: int
    note: str | None


def follow(visitor: str, visits: Iterator[Visit], state: GroupState[Known]) -> Iterator[Seen]:
    """A row of each visit; of a note that begins with fail none."""
    if state.hasTimedOut:
        state.remove()
        return
    known = state.get if state.exists else Known(0, None)
    for visit in visits:
        if visit.note is not None and visit.note.startswith("fail"):
            raise ValueError(f"the note of {visitor} is {visit.note}")
        known = Known(known.visits + 1, visit.note)
        yield Seen(visitor, *known)
    state.update(known)
    state.setTimeoutTimestamp(timestampUs=state.clock_us + 36_000_000_000)


STREAM = Stream(
    source="visits",
    schedule="0 * * * *",
    watermark_delay=timedelta(minutes=10),
    buckets=1,
    state_partitions=1,
    on_error="dead_letter",
    deduplicate=Deduplicate(by="note", within=timedelta(hours=1)),
    fold=flat_map_groups_with_state(
        follow,
        key="visitor",
        event=Visit,
        state=Known,
        output=Seen,
        output_mode="append",
        timeout="EventTimeTimeout",
    ),
    comments={"visitor": "The visitor", "visits": "So far", "note": "The newest"},
)
