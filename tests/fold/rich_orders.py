"""Folds over a company's orders: every type that a record may hold, keys of several columns, and
keys that a function makes."""

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NamedTuple

from include.fold.definition import KeyedFold, flat_map_groups_with_state
from include.fold.group_state import GroupState, GroupStateTimeout
from include.fold.records import Instant

Money = Annotated[Decimal, "decimal(12,2)"]
QUIET_US = 5_000


class Status(Enum):
    OPEN = "open"
    PAID = "paid"


class Item(NamedTuple):
    sku: str | None
    price: Money | None
    tags: tuple[str | None, ...] | None


class Order(NamedTuple):
    country: str
    customer: int | None
    amount: Money
    paid: bool
    status: Status
    items: tuple[Item | None, ...] | None
    notes: dict[str, float | None] | None
    raw: bytes
    day: date
    created: datetime
    shipped: Instant | None
    event_time_us: int


class Basket(NamedTuple):
    """The state: whatever can be remembered of orders."""

    total: Money
    by_sku: dict[str, Money]
    newest: Item | None
    days: tuple[date, ...]
    seen: dict[int, tuple[bytes, ...]]
    status: Status
    since: datetime
    last: Instant


class Bought(NamedTuple):
    country: str
    customer: int | None
    total: Money
    skus: dict[str, Money]
    items: tuple[Item | None, ...] | None
    status: Status | None
    since: datetime | None
    at: Instant


def remember(order: Order, before: Basket | None) -> Basket:
    by_sku = {} if before is None else dict(before.by_sku)
    for item in order.items or ():
        if item is not None and item.sku is not None:
            by_sku[item.sku] = by_sku.get(item.sku, Decimal(0)) + (item.price or Decimal(0))
    seen = {} if before is None else dict(before.seen)
    seen[len(order.raw)] = (*seen.get(len(order.raw), ()), order.raw)[-2:]
    return Basket(
        total=order.amount + (Decimal(0) if before is None else before.total),
        by_sku=by_sku,
        newest=order.items[-1] if order.items else None,
        days=(*(() if before is None else before.days), order.day)[-3:],
        seen=seen,
        status=order.status,
        since=order.created if before is None else min(before.since, order.created),
        last=Instant(order.event_time_us),
    )


def buy(key: Any, orders: Iterator[Order], state: GroupState[Basket]) -> Iterator[Bought]:
    """Each order with what the key has bought so far; once quiet, a row that ends it."""
    if state.hasTimedOut:
        basket = state.get
        yield Bought("-", None, basket.total, basket.by_sku, None, None, None, basket.last)
        state.remove()
    for order in orders:
        basket = remember(order, state.getOption)
        state.update(basket)
        state.setTimeoutTimestamp(timestampUs=order.event_time_us + QUIET_US)
        yield Bought(
            order.country,
            order.customer,
            basket.total,
            basket.by_sku,
            order.items,
            basket.status,
            basket.since,
            basket.last,
        )


class Total(NamedTuple):
    country: str
    customer: int | None
    total: Money
    skus: dict[str, Money]
    newest: Item | None


def add_up(key: Any, orders: Iterator[Order], state: GroupState[Basket]) -> Iterator[Total]:
    for order in orders:
        state.update(remember(order, state.getOption))
    yield project(key, state.get)


def project(key: Any, basket: Basket) -> Total:
    return Total(key.country, key.customer, basket.total, basket.by_sku, basket.newest)


class Buyer(NamedTuple):
    country: str
    customer: int | None


def buyer(order: Order) -> Buyer:
    """A derived key: in lower case, and the customer's parity alone."""
    return Buyer(order.country.lower(), None if order.customer is None else order.customer % 2)


def fold_with(key: Any, output_mode: str) -> KeyedFold:
    if output_mode == "append":
        return flat_map_groups_with_state(
            buy,
            key=key,
            event=Order,
            state=Basket,
            output=Bought,
            output_mode="append",
            timeout=GroupStateTimeout.EventTimeTimeout,
        )
    return flat_map_groups_with_state(
        add_up,
        key=key,
        event=Order,
        state=Basket,
        output=Total,
        output_mode="update",
        project=project,
    )


FOLDS = {
    "append by a column": fold_with("country", "append"),
    "append by two columns": fold_with(("country", "customer"), "append"),
    "update by two columns": fold_with(("country", "customer"), "update"),
    "append by a function": fold_with(buyer, "append"),
    "update by a function": fold_with(buyer, "update"),
}
