"""Orders and payments in one state, by the command line on Spark, compared with SQL over what landed."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from tests.cli.test_own_streams import stateful

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.turn(2)]

SOURCES = """
from datetime import timedelta
from include.connectors import Merged
from include.settings import Field, Source

ORDER = Field(name="order_id", type="string", comment="Of a shop")
AMOUNT = Field(name="amount", type="bigint", comment="To be paid")
PAID = Field(name="paid", type="bigint", comment="Of it")
SOURCES = (
    Source(name="orders", time_field="happened", comment="Orders", fields=(ORDER, AMOUNT)),
    Source(name="payments", time_field="happened", comment="Payments", fields=(ORDER, PAID)),
    Source(
        name="order_payments",
        comment="Both",
        connector=Merged(orders=timedelta(minutes=10), payments=timedelta(hours=1)),
    ),
)
"""
STREAM = '''
"""What is left to pay of each order"""
from datetime import timedelta
from typing import NamedTuple

from include.fold.definition import flat_map_groups_with_state
from include.settings import Stream


class Event(NamedTuple):
    order_id: str
    event_time_us: int
    input: str
    amount: int | None
    paid: int | None


class Open(NamedTuple):
    left: int


class Balance(NamedTuple):
    order_id: str
    input: str
    left: int


def balance(order_id, events, state):
    left = state.get.left if state.exists else 0
    for event in events:
        left += (event.amount or 0) - (event.paid or 0)
        yield Balance(order_id, event.input, left)
    state.update(Open(left))


STREAM = Stream(
    source="order_payments",
    schedule="@hourly",
    watermark_delay=timedelta(0),
    fold=flat_map_groups_with_state(
        balance, key="order_id", event=Event, state=Open, output=Balance, output_mode="append"
    ),
    comments={"order_id": "Of a shop", "input": "What changed it", "left": "To be paid"},
    buckets=2,
    state_partitions=2,
)
'''
BALANCES = """
WITH landed AS (
    SELECT order_id, happened::TIMESTAMP AS time, 'orders' AS name, amount AS changed FROM orders
    UNION ALL SELECT order_id, happened::TIMESTAMP, 'payments', -paid FROM payments),
latest AS (SELECT name, max(time) AS time FROM landed GROUP BY name),
complete AS (
    SELECT min(time - if(name = 'orders', INTERVAL 10 MINUTE, INTERVAL 1 HOUR)) AS until FROM latest)
SELECT order_id, name, time,
    (sum(changed) OVER (PARTITION BY order_id ORDER BY time, name, abs(changed)
        ROWS UNBOUNDED PRECEDING))::BIGINT
FROM landed, complete WHERE time <= until ORDER BY ALL
"""
START = datetime(2026, 3, 1, tzinfo=UTC)
NAME = "order_balance"


def sent(draw: Random, field: str, first: int, last: int) -> list[dict[str, Any]]:
    """Rows of some hours; many of one minute, also of both inputs."""
    minutes = (draw.randrange(first * 60, last * 60) for _ in range(300))
    return [
        {
            "order_id": f"order {draw.randrange(20)}",
            "happened": (START + timedelta(minutes=minute)).isoformat(),
            field: draw.randrange(1, 100),
        }
        for minute in minutes
    ]


def test_orders_and_payments_meet_in_one_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, lake = tmp_path / "streams", tmp_path / "lake"
    folder.mkdir()
    (folder / "sources.py").write_text(SOURCES)
    (folder / f"{NAME}.py").write_text(STREAM)
    monkeypatch.setenv("STREAMS", str(folder))
    draw, landed = Random(7), {"orders": list[Any](), "payments": list[Any]()}

    def land(source: str, rows: list[dict[str, Any]]) -> None:
        place = lake / "landing" / source
        place.mkdir(parents=True, exist_ok=True)
        text = "\n".join(map(json.dumps, rows))
        (place / f"{len(landed[source])}.jsonl").write_text(text)
        landed[source] += rows

    def check() -> None:
        table = DeltaTable(lake / "tables" / NAME).to_pyarrow_table()
        found = [(r["order_id"], r["input"], r["emitted_at"], r["left"]) for r in table.to_pylist()]
        database = duckdb.connect()
        database.execute("SET TimeZone = 'UTC'")
        for source, rows in landed.items():
            (tmp_path / f"{source}.json").write_text("\n".join(map(json.dumps, rows)))
            file = tmp_path / f"{source}.json"
            database.execute(f"CREATE VIEW {source} AS FROM read_json_auto('{file}')")
        expected = database.execute(BALANCES).fetchall()
        assert len(expected) > 100
        assert sorted((o, i, at.replace(tzinfo=None), left) for o, i, at, left in found) == expected

    land("orders", sent(draw, "amount", 0, 9))
    land("payments", sent(draw, "paid", 0, 6))
    stateful("stream", NAME, "--lake", str(lake))
    check()
    land("orders", sent(draw, "amount", 6, 12))  # some of these are late by the merged watermark
    land("payments", sent(draw, "paid", 4, 14))
    stateful("ingest", "order_payments", "--lake", str(lake))
    status = json.loads(stateful("status", NAME, "--json", "--lake", str(lake)))
    assert "late rows" in json.dumps(status)
    assert NAME in stateful("plan", "--check", "--lake", str(lake), code=4)
    stateful("rebuild", NAME, "--apply", "--lake", str(lake))
    check()
