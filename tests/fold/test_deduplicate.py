"""Events that are delivered again: what a fold makes of them, and what cannot be declared."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import pytest

from include.fold.deduplicate import Deduplicate
from include.fold.definition import flat_map_groups_with_state
from include.fold.testing.check import BrokenLawError, check_fold
from include.registry import stream_named
from include.settings import Field, Source
from include.stream_definition import load_definition, pinned_settings
from include.streams import user_counts
from tests.bronze import ClockAt, stamp
from tests.declared import with_fold
from tests.engines.plain_operator import PlainOperator
from tests.fold.planted import WRONG
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


def order(
    at_us: int, order_id: str | None = "x", line: int | None = 1, price: float = 1.0
) -> Order:
    return Order("ann", at_us, order_id, line, price)


def test_check_fold_folds_as_declared():
    with pytest.raises(BrokenLawError):
        check_fold(
            replace(
                WRONG["count_of_calls"], deduplicate=Deduplicate(by="event_type", within=WITHIN)
            )
        )


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Anything(NamedTuple):
    user_id: str
    event_time_us: int
    text: str
    number: int
    truth: bool
    raw: bytes
    day: date
    at: datetime
    price: Decimal
    colour: Colour


ONE = Anything(
    "ann",
    100_000,
    "é",
    1,
    True,
    b"\0",
    date(2026, 1, 1),
    datetime(2026, 1, 1, tzinfo=UTC),
    Decimal("1.10"),
    Colour.RED,
)
OTHER = ONE._replace(
    text="e",
    number=2,
    truth=False,
    raw=b"",
    day=date(2026, 1, 2),
    at=datetime(2026, 1, 2, tzinfo=UTC),
    price=Decimal("1.11"),
    colour=Colour.BLUE,
)


@pytest.mark.parametrize("by", [*Anything._fields[2:], ("colour", "at", "price")])
def test_values_of_each_type_are_known_again_when_they_have_been_stored(by):
    fold = replace(
        flat_map_groups_with_state(
            lambda user_id, events, state: iter([Counted(user_id, len(list(events)))]),
            key="user_id",
            event=Anything,
            state=Count,
            output=Counted,
            output_mode="append",
        ),
        deduplicate=Deduplicate(by=by, within=timedelta(seconds=1)),
    )
    operator = PlainOperator(fold, 0, 1)
    later = [each._replace(event_time_us=101_000) for each in (ONE, OTHER)]
    for rows in stamp([[ONE, OTHER], later, ClockAt(102_000)]):
        operator.run_batch(rows)
    assert (len(operator.emitted.rows), operator.duplicates) == (2, 2)


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


@pytest.mark.parametrize("by", ["c", "b"])
def test_a_source_says_at_once_what_it_cannot_know_again(by):
    fields = (
        Field(name="a", type="string", comment=""),
        Field(name="b", type="double", comment=""),
    )
    with refused("wrong_setting", subject="deduplicate"):
        Source(
            name="s",
            time_field="t",
            fields=fields,
            comment="",
            deduplicate=Deduplicate(by=by, within=WITHIN),
        )


def test_it_is_pinned_and_without_it_nothing_is():
    stream = with_fold(stream_named("user_counts"), FOLD)
    pinned = pinned_settings(stream, load_definition(stream).fold)
    assert pinned["settings"] == '{"deduplicate": "by order_id within 0:00:00.000100"}'
    assert pinned["state_schema"].endswith(
        ", seen array<struct<by_order_id: string, at_us: bigint>>"
    )
    plain = pinned_settings(stream, replace(FOLD, deduplicate=None))
    assert plain["settings"] is None
    assert "seen" not in plain["state_schema"]
