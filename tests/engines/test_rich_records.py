"""The fold law over records of every type, and over keys of several columns or of a function."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, NamedTuple

import pytest
from pandas import Timestamp
from pyspark import cloudpickle

from include.fold.bucket import derived_keys
from include.fold.definition import flat_map_groups_with_state
from include.fold.failures import StateFunctionError
from include.fold.states import States, migrated
from include.fold.testing.cases import run
from include.ingest.initial_state import read_initial_state
from include.observe.state_report import biggest_keys, value_bytes
from spark_jobs.engines.state_rows import projected
from tests.bronze import stamp
from tests.engines.plain_operator import events_table
from tests.fold.rich_orders import FOLDS, Basket, Item, Order, Status, remember

pytestmark = pytest.mark.slow
STARTED = datetime(2026, 1, 1, tzinfo=UTC)


def an_order(us, sku, created):
    item = Item(sku, Decimal("1.5"), None)
    fields = (Decimal(1), True, Status.OPEN, (item,), None, b"", date(2026, 1, 1), created, None)
    return Order("DE", 1, *fields, us)


class Report(NamedTuple):
    before: str


def fails(function) -> None:
    """Calls the function with an order, which must fail for its state."""
    fold = flat_map_groups_with_state(
        function, key="country", event=Order, state=Basket, output=Report, output_mode="append"
    )
    with pytest.raises(StateFunctionError):
        run(fold, [an_order(1, "a", STARTED)])


def states_of(fold, ran) -> States:
    states = States(fold)
    for known in ran.known.values():
        states.put(*known)
    return states


@pytest.mark.parametrize(
    "change",
    [
        {"total": Decimal("0.001")},
        {"total": Decimal("NaN")},
        {"total": 1.5},
        {"by_sku": {1: Decimal(1)}},
        {"by_sku": {"a": None}},
        {"days": (datetime(2026, 1, 1, tzinfo=UTC),)},
        {"since": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"since": Timestamp("2026-01-01T00:00:00.000000001Z")},
        {"status": "open"},
        {"newest": ("a", None, None)},
        {"seen": {2**63: ()}},
        {"newest": Item("\ud800", None, None)},
    ],
)
def test_a_state_that_cannot_be_stored_exactly_fails_the_call_that_leaves_it(change):
    def leave(key, orders, state):
        state.update(remember(next(orders), None)._replace(**change))
        return iter(())

    fails(leave)


class Wide(NamedTuple):
    total: Decimal  # decimal(38,18)


class Sum(NamedTuple):
    country: str
    twice: Annotated[Decimal, "decimal(38,18)"]


def test_sums_of_all_the_digits_that_a_column_has_are_exact():
    amount = Decimal("12345678901234567890.123456789012345678")

    def project(key: str, wide: Wide) -> Sum:
        return Sum(key, wide.total * 2)

    def add(key, orders, state):
        for _ in orders:
            before = state.get.total if state.exists else Decimal(0)
            state.update(Wide(before + amount))
        yield project(key, state.get)

    fold = flat_map_groups_with_state(
        add,
        key="country",
        event=Order,
        state=Wide,
        output=Sum,
        output_mode="update",
        project=project,
    )
    ran = run(fold, [an_order(1, "a", STARTED), an_order(2, "a", STARTED)])
    expected = Decimal("24691357802469135780.246913578024691356")
    assert [state.total for state in ran.states.values()] == [expected]
    (row,) = projected(fold, states_of(fold, ran).rows()).to_pylist()
    assert row["twice"] == Decimal("49382715604938271560.493827156049382712")


def test_a_dict_of_a_state_is_not_changed_in_place():
    def change(key, orders, state):
        state.update(remember(next(orders), None))
        state.get.by_sku["more"] = Decimal(1)
        return iter(())

    fails(change)


def test_states_go_through_a_migration_and_an_initial_state(lake):
    fold = FOLDS["append by two columns"]
    ran = run(fold, [an_order(1, "a", STARTED)])

    def same(old):
        newest = Item(**old["newest"])
        status = Status(old["status"])
        return Basket(**(old | {"newest": newest, "status": status}))

    (batch,) = states_of(fold, ran).rows().to_batches()
    assert {k.key: k.state for k in States(fold, migrated(batch, fold, same))} == ran.states

    document = {
        "as_of": "2026-03-01T00:00:00Z",
        "keys": [
            {
                "key": {"country": "DE", "customer": 1},
                "state": {
                    "total": "1.00",
                    "by_sku": {"a": "1.50"},
                    "newest": {"sku": "a", "price": "1.5", "tags": None},
                    "days": ["2026-01-01"],
                    "seen": {"0": [""]},
                    "status": "open",
                    "since": "2026-01-01T00:00:00Z",
                    "last": "1970-01-01T00:00:00.000001Z",
                },
            }
        ],
    }
    file = Path(lake.initial_state_file("baskets"))
    file.parent.mkdir()
    file.write_text(json.dumps(document))
    given = read_initial_state(lake, "baskets", fold)
    assert {k.key: k.state for k in States(fold, given.states)} == ran.states


def test_a_key_function_that_fails_names_the_event():
    def parity(order: Order) -> int:
        return order.customer % 2

    fold = replace(FOLDS["append by a column"], key=parity, stream="orders")
    order = an_order(1, "a", STARTED)._replace(customer=None)
    (row,) = stamp([[order]])
    events = events_table(replace(fold, key="country"), row)
    with pytest.raises(StateFunctionError):
        derived_keys(fold, events)


def test_states_of_every_type_are_measured_and_their_folds_go_to_other_processes():
    fold = FOLDS["append by two columns"]
    of_none = an_order(2, "b", STARTED)._replace(customer=None)
    ran = run(fold, [an_order(1, "a", STARTED), of_none])
    rows = states_of(fold, ran).rows()
    sizes = value_bytes(rows.to_struct_array().combine_chunks())
    biggest = biggest_keys(rows, sizes)
    assert [row["key"]["customer"] for row in biggest] == [1, None]
    assert '"by_sku":{"a":1.50}' in biggest[0]["state"]

    there, keys = cloudpickle.loads(cloudpickle.dumps((fold, list(ran.states))))
    assert keys == list(ran.states)
    assert type(keys[0]) is type(next(iter(ran.states)))
    assert run(there, [an_order(1, "a", STARTED), of_none]).outputs == ran.outputs
