"""Events that are delivered again: what a fold makes of them, and what cannot be declared."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from include.fold.definition import Deduplicate, flat_map_groups_with_state
from include.registry import stream_named
from include.stream_definition import load_definition
from include.streams import user_counts
from tests.refused import refused

WITHIN = timedelta(microseconds=100)


class Order(NamedTuple):
    user_id: str
    event_time_us: int
    order_id: str | None
    line: int | None
    price: float


class Count(NamedTuple):
    orders: int


class Counted(NamedTuple):
    user_id: str
    orders: int


def count(user_id, orders, state):
    for order in orders:
        if order.price < 0:
            raise ValueError("a price below nothing")
        state.update(Count((state.get.orders if state.exists else 0) + 1))
        yield Counted(user_id, state.get.orders)


def fold_by(by: Any, **settings: Any) -> Any:
    return flat_map_groups_with_state(
        count,
        key="user_id",
        event=Order,
        state=Count,
        output=Counted,
        output_mode="append",
        deduplicate=Deduplicate(by=by, within=WITHIN),
        **settings,
    )


FOLD = fold_by("order_id")


@pytest.mark.parametrize(
    "given",
    [
        {"by": "order_id", "within": timedelta(0)},
        {"by": "order_id", "within": 3600},
        {"by": "order_id", "within": timedelta.max},
        {"by": (), "within": WITHIN},
        {"by": ("line", "line"), "within": WITHIN},
        {"by": "ordr_id", "within": WITHIN},
        {"by": "price", "within": WITHIN},
    ],
)
def test_what_cannot_be_known_again_is_refused_where_it_is_declared(given):
    with refused("wrong_definition", subject="deduplicate"):
        replace(FOLD, deduplicate=Deduplicate(**given))


def test_a_source_says_it_for_its_streams_and_a_stream_may_say_otherwise(monkeypatch):
    from include.streams import sources

    known = Deduplicate(by="event_type", within=WITHIN)
    given = tuple(
        replace(source, deduplicate=known) if source.name == "user_events" else source
        for source in sources.SOURCES
    )
    monkeypatch.setattr(sources, "SOURCES", given)
    assert stream_named("threshold_alerts").deduplicate == known
    with refused("wrong_definition", subject="deduplicate"):
        stream_named("user_counts")
    other = replace(user_counts.STREAM, deduplicate=None)
    monkeypatch.setattr(user_counts, "STREAM", other)
    assert load_definition(stream_named("user_counts")).fold.deduplicate is None
