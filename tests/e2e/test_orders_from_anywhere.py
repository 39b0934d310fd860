"""A company's orders from five kinds of origin, folded by country and customer: one table, SQL's."""

import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark import cloudpickle

from include import origins
from include.fold.definition import flat_map_groups_with_state
from include.fold.group_state import GroupState
from include.lake.paths import Lake
from include.landing.ingest import ingest
from include.settings import Source, Stream
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from tests.landing.test_orders import FORMATS, ORDERS, as_json, json_lines, orders, parquet
from tests.topics import TOPIC, served

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.turn(0)]
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Money = Annotated[Decimal, "decimal(12,2)"]


class Item(NamedTuple):
    sku: str | None
    count: int | None
    price: Money | None


class Order(NamedTuple):
    country: str
    customer_id: int
    amount: Money
    paid: bool
    items: tuple[Item | None, ...]
    event_time_us: int


class Bought(NamedTuple):
    total: Money
    unpaid: Money
    units: dict[str, int]
    last_items: tuple[Item | None, ...]


class Customer(NamedTuple):
    country: str
    customer_id: int
    total: Money
    unpaid: Money
    units: dict[str, int]
    last_items: tuple[Item | None, ...]


def buy(key: Any, placed: Iterator[Order], state: GroupState[Bought]) -> Iterator[Customer]:
    for order in placed:
        before = state.getOption or Bought(Decimal(0), Decimal(0), {}, ())
        units = dict(before.units)
        for item in order.items:
            if item is not None and item.sku is not None:
                units[item.sku] = units.get(item.sku, 0) + (item.count or 0)
        unpaid = before.unpaid + (Decimal(0) if order.paid else order.amount)
        state.update(Bought(before.total + order.amount, unpaid, units, order.items))
    yield project(key, state.get)


def project(key: Any, bought: Bought) -> Customer:
    return Customer(key.country, key.customer_id, *bought)


FOLD = flat_map_groups_with_state(
    buy,
    key=("country", "customer_id"),
    event=Order,
    state=Bought,
    output=Customer,
    output_mode="update",
    project=project,
)
STREAM = Stream(
    name="customers",
    source="orders",
    schedule="0 * * * *",
    watermark_delay=timedelta(0),
    fold=FOLD,
    comments=dict.fromkeys(Customer._fields, "Of the orders"),
    buckets=3,
    state_partitions=2,
)
ORACLE = """
WITH placed AS (
    SELECT customer.country, customer.id AS customer_id, * EXCLUDE customer
    FROM read_json($path, format = 'newline_delimited', columns = {
        customer: 'STRUCT(id BIGINT, country VARCHAR)', amount: 'DECIMAL(12,2)', paid: 'BOOLEAN',
        created_at: 'BIGINT', items: 'STRUCT(sku VARCHAR, "count" BIGINT, price DECIMAL(12,2))[]'})
), sold AS (
    SELECT country, customer_id, item.sku, sum(item."count")::BIGINT AS units
    FROM (SELECT country, customer_id, unnest(items) AS item FROM placed) GROUP BY ALL
), by_sku AS (
    SELECT country, customer_id, map(list(sku ORDER BY sku), list(units ORDER BY sku)) AS units
    FROM sold GROUP BY ALL
)
SELECT country, customer_id, sum(amount)::DECIMAL(12,2) AS total,
       coalesce(sum(amount) FILTER (NOT paid), 0)::DECIMAL(12,2) AS unpaid,
       coalesce(any_value(units), map()) AS units, arg_max(items, created_at) AS last_items
FROM placed LEFT JOIN by_sku USING (country, customer_id)
GROUP BY country, customer_id ORDER BY country, customer_id
"""


def land(name: str) -> Callable[[Lake, pytest.MonkeyPatch], Source]:
    def write(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Source:
        landing = Path(lake.landing(ORDERS.name))
        landing.mkdir(parents=True)
        (landing / name).write_bytes(FORMATS[name](orders()))
        return ORDERS

    return write


def produce(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Source:
    topic = served(monkeypatch)
    for number, each in enumerate(orders()):
        topic.produce(number % 3, as_json(each))
    return replace(ORDERS, origin=TOPIC)


def append(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Source:
    uri = f"{lake.root}/somebody_elses/orders"
    rows = pq.read_table(io.BytesIO(parquet(orders())))
    at = rows.schema.get_field_index("created_at")
    rows = rows.set_column(at, "created_at", rows["created_at"].cast(pa.timestamp("us", "UTC")))
    for start in range(0, rows.num_rows, 80):
        write_deltalake(uri, rows.slice(start, 80), mode="append")
    return replace(ORDERS, origin=origins.DeltaTable(uri=uri))


ORIGINS = {
    "JSON lines": land("orders.jsonl"),
    "CSV": land("orders.csv"),
    "Parquet": land("orders.parquet"),
    "Kafka": produce,
    "Delta": append,
}


def rows_of_table(path: str) -> list[dict[str, Any]]:
    rows = DeltaTable(path).to_pyarrow_table().select(Customer._fields).to_pylist()
    return sorted(
        (row | {"units": dict(row["units"])} for row in rows),
        key=lambda row: (row["country"], row["customer_id"]),
    )


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_table_is_what_sql_makes_of_the_orders(spark, lake, tmp_path, monkeypatch, origin):
    source = ORIGINS[origin](lake, monkeypatch)
    assert ingest(lake, source).rows_bronze == len(orders())
    drain(SparkEngine(spark), lake, STREAM)
    (tmp_path / "raw.jsonl").write_bytes(json_lines(orders()))
    expected = duckdb.sql(ORACLE, params={"path": str(tmp_path / "raw.jsonl")}).to_arrow_table()
    rows = [row | {"units": dict(row["units"])} for row in expected.to_pylist()]
    assert rows_of_table(lake.table(STREAM.name)) == rows
    assert len(rows) > 20
