"""Moves of goods, read from the change data feed of a table of others: the newest place of each."""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from include.fold.definition import map_groups_with_state
from include.fold.group_state import GroupState
from include.settings import Stream


class Move(NamedTuple):
    item: str
    place: str
    event_time_us: int


class Place(NamedTuple):
    place: str
    moves: int


class Where(NamedTuple):
    item: str
    place: str
    moves: int


def project(item: str, state: Place) -> Where:
    return Where(item, state.place, state.moves)


def follow(item: str, moves: Iterator[Move], state: GroupState[Place]) -> Where:
    """Where the item is now."""
    known = state.get if state.exists else Place("", 0)
    for move in moves:
        known = Place(move.place, known.moves + 1)
    state.update(known)
    return project(item, known)


STREAM = Stream(
    source="kept_moves",
    schedule="0 * * * *",
    watermark_delay=timedelta(minutes=10),
    buckets=2,
    state_partitions=2,
    fold=map_groups_with_state(
        follow,
        key="item",
        event=Move,
        state=Place,
        output=Where,
        output_mode="update",
        project=project,
    ),
    comments={"item": "Key: the item", "place": "Where it is", "moves": "How often it was moved"},
)
