"""The last visitor of each page: a stream whose key is not the visitor."""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from include.fold.definition import map_groups_with_state
from include.fold.group_state import GroupState
from include.settings import Stream


class Visit(NamedTuple):
    page: str
    visitor: str
    note: str | None
    event_time_us: int


class Visitors(NamedTuple):
    visits: int
    last: tuple[str, ...]


class Page(NamedTuple):
    page: str
    visits: int
    last: str


def project(page: str, state: Visitors) -> Page:
    return Page(page, state.visits, " ".join(state.last))


def count(page: str, visits: Iterator[Visit], state: GroupState[Visitors]) -> Page:
    """The page with its last three visitors."""
    known = state.get if state.exists else Visitors(0, ())
    for visit in visits:
        told = f"{visit.visitor} {visit.note}"
        known = Visitors(known.visits + 1, (*known.last, told)[-3:])
    state.update(known)
    return project(page, known)


STREAM = Stream(
    source="visits",
    schedule="0 * * * *",
    watermark_delay=timedelta(minutes=10),
    buckets=1,
    state_partitions=1,
    fold=map_groups_with_state(
        count,
        key="page",
        event=Visit,
        state=Visitors,
        output=Page,
        output_mode="update",
        project=project,
    ),
    comments={"page": "Key: the page", "visits": "So far", "last": "Who came last"},
)
