"""Orders of a shop's customers: what a state of 0.6 can hold, all at once.

The key has two columns, one of them may be None; two timers and a timeout run beside the state; an order that
comes twice is passed over; a call may fail and be rejected; one bucket is large enough to be compressed.
"""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, NamedTuple

from include.fold.definition import flat_map_groups_with_state
from include.fold.group_state import GroupState
from include.settings import Deduplicate, Stream

Money = Annotated[Decimal, "decimal(12,2)"]


class Order(NamedTuple):
    shop: str
    customer: int | None
    order_id: str
    amount: Money
    event_time_us: int


class Spent(NamedTuple):
    total: Money
    orders: tuple[str, ...]
    by_day: dict[int, Money]


class Notice(NamedTuple):
    shop: str
    customer: int | None
    what: str
    total: Money


def remember(
    key: tuple[str, int | None], orders: Iterator[Order], state: GroupState[Spent]
) -> Iterator[Notice]:
    """A notice of each order, and when a customer has been quiet for a while."""
    shop, customer = key
    known = state.get if state.exists else Spent(Decimal("0.00"), (), {})
    if state.hasTimedOut or state.timer is not None:
        yield Notice(shop, customer, state.timer or "timeout", known.total)
        if state.timer == "expiry":
            state.remove()
        return
    for order in orders:
        if order.amount < 0:
            raise ValueError("an order of less than nothing")
        days = dict(known.by_day)
        day = order.event_time_us // 86_400_000_000
        days[day] = days.get(day, Decimal("0.00")) + order.amount
        known = Spent(known.total + order.amount, (*known.orders, order.order_id)[-3:], days)
        yield Notice(shop, customer, "order", known.total)
    state.update(known)
    state.setTimeoutTimestamp(timestampUs=state.clock_us + 1_800_000_000)
    state.setTimer("reminder", timestampUs=state.clock_us + 3_600_000_000)
    state.setTimer("expiry", timestampUs=state.clock_us + 14_400_000_000)


STREAM = Stream(
    source="kept_orders",
    schedule="0 * * * *",
    watermark_delay=timedelta(minutes=10),
    buckets=2,
    state_partitions=2,
    on_error="quarantine",
    deduplicate=Deduplicate(by="order_id", within=timedelta(hours=1)),
    fold=flat_map_groups_with_state(
        remember,
        key=("shop", "customer"),
        event=Order,
        state=Spent,
        output=Notice,
        output_mode="append",
        timeout="EventTimeTimeout",
        timers=("reminder", "expiry"),
    ),
    comments={
        "shop": "Key: the shop",
        "customer": "Key: the customer; null for none",
        "what": "order, timeout, or the timer",
        "total": "Spent so far",
    },
)
