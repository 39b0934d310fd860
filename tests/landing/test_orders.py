"""A company's orders go in as they are, by each format and parser, and come out equal to SQL."""

import csv
import io
import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from include.lake.columns import arrow_type
from include.lake.paths import Lake
from include.landing.ingest import ingest
from include.landing.parse_files import Parse
from include.settings import Field, Source, Times
from tests.parsers import both_parsers

ITEMS = "array<struct<sku: string, count: int, price: decimal(12,2)>>"
ORDERS = Source(
    name="orders",
    time_field="created_at",
    comment="What customers order",
    times=Times(format="epoch_ms", zone="UTC"),
    fields=(
        Field(name="order_id", type="bigint", comment="Key"),
        Field(name="customer_id", type="int", path="customer.id", comment="Who ordered"),
        Field(name="country", type="string", path="customer.country", comment="From where"),
        Field(name="amount", type="decimal(12,2)", comment="What it comes to"),
        Field(name="paid", type="boolean", comment="Whether it is paid"),
        Field(name="due", type="date", required=False, comment="When it is to be paid"),
        Field(name="weight", type="float", required=False, comment="Of the parcel, kg"),
        Field(name="items", type=ITEMS, comment="What was ordered"),
        Field(name="labels", type="map<string, tinyint>", required=False, comment="Anything"),
        Field(name="token", type="binary", required=False, comment="Of the payment"),
    ),
)
COUNT = 200
START = datetime(2026, 3, 1, tzinfo=UTC)
Order = dict[str, Any]


def orders() -> list[Order]:
    chosen = random.Random(7)
    return [order(chosen, number) for number in range(COUNT)]


def order(chosen: random.Random, number: int) -> Order:
    items = [
        {"sku": f"sku-{n}", "count": chosen.randrange(1, 9), "price": cents(chosen, 9_999)}
        for n in range(chosen.randrange(4))
    ]
    return {
        "order_id": 2**53 + number,  # beyond what a double holds exactly
        "customer": {"id": chosen.randrange(20), "country": chosen.choice(["DE", "FR", "é"])},
        "amount": sum((i["count"] * i["price"] for i in items), Decimal("0.00")),
        "paid": chosen.random() < 0.5,
        "created_at": int(START.timestamp()) * 1000 + number * 1_001,
        "due": (START + timedelta(days=number)).date().isoformat() if number % 3 else None,
        "weight": number / 8,
        "items": items,
        "labels": {"urgent": number % 100} if number % 2 else {},
        "token": "AAE=" if number % 5 else None,
    }


def cents(chosen: random.Random, most: int) -> Decimal:
    return Decimal(chosen.randrange(1, most)) / 100


def as_json(value: Any) -> str:
    """JSON in which money is a number, as most producers write it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(n)}: {as_json(of)}' for n, of in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_json, value))}]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


def json_lines(landed: list[Order]) -> bytes:
    return "".join(f"{as_json(each)}\n" for each in landed).encode()


def csv_text(landed: list[Order]) -> bytes:
    text = io.StringIO()
    rows = [flat(each) for each in landed]
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(
        {
            name: as_json(of) if isinstance(of, dict | list | bool) else of
            for name, of in row.items()
        }
        for row in rows
    )
    return text.getvalue().encode()


def flat(each: Order) -> Order:
    """The order with a column for each path."""
    others = {name: of for name, of in each.items() if name != "customer"}
    return {f"customer.{name}": of for name, of in each["customer"].items()} | others


def parquet(landed: list[Order]) -> bytes:
    """As pandas writes it: times without a zone."""
    customer = pa.struct([("id", pa.int64()), ("country", pa.string())])
    kinds = {field.name: arrow_type(field.type) for field in ORDERS.fields}
    kinds |= {"customer": customer, "created_at": pa.timestamp("ns"), "due": pa.string()}
    rows = [each | {"labels": list(each["labels"].items())} for each in landed]
    columns = {
        name: pa.array([converted(name, row[name]) for row in rows], kinds[name])
        for name in landed[0]
    }
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def converted(name: str, value: Any) -> Any:
    if name == "created_at":
        return value * 1_000_000
    return b"\0\1" if name == "token" and value else value


FORMATS = {"orders.jsonl": json_lines, "orders.csv": csv_text, "orders.parquet": parquet}
ORACLE = """
SELECT order_id, customer.id::INT AS customer_id, customer.country, amount, paid, due,
       weight, items, labels, token, epoch_ms(created_at) AS event_time
FROM read_json($path, format = 'newline_delimited', columns = {
    order_id: 'BIGINT', customer: 'STRUCT(id BIGINT, country VARCHAR)', amount: 'DECIMAL(12,2)',
    paid: 'BOOLEAN', created_at: 'BIGINT', due: 'DATE', weight: 'FLOAT',
    items: 'STRUCT(sku VARCHAR, "count" INT, price DECIMAL(12,2))[]',
    labels: 'MAP(VARCHAR, TINYINT)', token: 'VARCHAR'})
ORDER BY order_id
"""


@both_parsers
@pytest.mark.parametrize("name", FORMATS)
def test_orders_come_into_bronze_as_sql_reads_them(
    lake: Lake, tmp_path: Path, name: str, parse: Parse
):
    landing = Path(lake.landing(ORDERS.name))
    landing.mkdir(parents=True)
    (landing / name).write_bytes(FORMATS[name](orders()))

    counts = ingest(lake, ORDERS, parse=parse)

    assert (counts.rows_bronze, counts.rows_quarantined) == (COUNT, 0)
    bronze = DeltaTable(lake.bronze(ORDERS.name)).to_pyarrow_table().sort_by("order_id")
    for field in ORDERS.fields:
        assert bronze.schema.field(field.name).type == arrow_type(field.type)
    assert bronze["token"].to_pylist() == [b"\0\1" if n % 5 else None for n in range(COUNT)]
    (tmp_path / "raw.jsonl").write_bytes(json_lines(orders()))
    expected = duckdb.sql(ORACLE, params={"path": str(tmp_path / "raw.jsonl")}).to_arrow_table()
    times = [instant.replace(tzinfo=UTC) for instant in expected["event_time"].to_pylist()]
    assert bronze["event_time"].to_pylist() == times
    for column in expected.column_names:
        if column not in ("event_time", "token"):
            assert bronze[column].to_pylist() == expected[column].to_pylist(), column
