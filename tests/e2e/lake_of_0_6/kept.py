"""The golden lake of 0.6: its sources and streams, what is landed in it, and what its tables must be.

Its two stream files lie beside this one, and are found as those of `include/streams` are.
"""

import importlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark import cloudpickle

import include.streams
from include import origins
from include.fold.instants import instant_of, micros_of
from include.lake.paths import Lake
from include.landing.ingest import ingest
from include.plans.plan_recompute import settled_until
from include.registry import source_named, stream_named
from include.savepoints.bronze_pin import pin_bronze
from include.settings import Field, Source
from include.stream_definition import load_definition
from include.streams import sources
from spark_jobs.engines.local_engine import LocalEngine
from spark_jobs.engines.state_rows import projected

HERE = Path(__file__).parent
ARCHIVE = HERE / "lake.tar.xz"
STREAMS = ("kept_orders", "kept_moves")
START = datetime(2026, 3, 1, tzinfo=UTC)
ORDERS = Source(
    name="kept_orders",
    time_field="at",
    comment="Orders",
    fields=(
        Field(name="shop", type="string", comment="The shop"),
        Field(name="customer", type="bigint", comment="Who bought", required=False),
        Field(name="order_id", type="string", comment="Its number", path="order.id"),
        Field(name="amount", type="decimal(12,2)", comment="How much"),
    ),
)


def moves(folder: Path) -> Source:
    """The source of a table of others, which lies beside the lake."""
    return Source(
        name="kept_moves",
        time_field="at",
        comment="Moves of goods",
        fields=(
            Field(name="item", type="string", comment="What was moved"),
            Field(name="place", type="string", comment="Where to"),
        ),
        origin=origins.DeltaTable(uri=str(folder / "theirs")),
    )


@contextmanager
def declared(folder: Path) -> Iterator[Lake]:
    """The lake in `folder`, its sources and streams declared meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(include.streams, "__path__", [*include.streams.__path__, str(HERE)])
        patch.setattr(sources, "SOURCES", (*sources.SOURCES, ORDERS, moves(folder)))
        for name in STREAMS:
            # Spark's workers do not find these files.
            cloudpickle.register_pickle_by_value(importlib.import_module(f"include.streams.{name}"))
        yield Lake(str(folder / "lake"))


def land(lake: Lake, folder: Path, hours: int) -> None:
    """The orders and moves of two hours from that on, some of them twice, refused, late or with more
    than their fields; and ingest them."""
    rng, start = random.Random(hours), START + timedelta(hours=hours)
    orders = [order(rng, start, number) for number in range(600)]
    orders += rng.sample(orders, 20)
    path = Path(lake.landing("kept_orders"), f"{hours}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["no order", *map(json.dumps, orders)]))
    _move(folder, rng, start)
    for name in STREAMS:
        ingest(lake, source_named(name))


def order(rng: random.Random, start: datetime, number: int) -> dict[str, Any]:
    """A landed row. Of a hundred one fails its function, and a few are behind the watermark."""
    minutes = rng.randrange(-30 if number % 50 == 0 else 0, 120)
    at = start + timedelta(minutes=minutes, microseconds=rng.randrange(10**6))
    row: dict[str, Any] = {
        "shop": rng.choice(["north", "south"]),
        "customer": rng.choice([None, *range(250)]),
        "order": {"id": f"{start:%H}-{number}"},
        "amount": "-1.00" if number % 100 == 7 else f"{rng.randrange(10**5) / 100:.2f}",
        "at": at.isoformat(),
    }
    return row | ({"colour": "red"} if number % 5 == 0 else {})


def _move(folder: Path, rng: random.Random, start: datetime) -> None:
    times = [start + timedelta(minutes=rng.randrange(120)) for _ in range(60)]
    rows = {
        "item": [f"item {rng.randrange(20)}" for _ in times],
        "place": [rng.choice("abc") for _ in times],
        "at": pa.array(times, pa.timestamp("us", "UTC")),
    }
    feed = {"delta.enableChangeDataFeed": "true"}
    uri = str(folder / "theirs")
    write_deltalake(uri, pa.table(rows), mode="append", configuration=feed)
    # A version that takes rows away and inserts none: passed over.
    DeltaTable(uri).delete(f"item = 'item {rng.randrange(20)}'")


# What tables must be


def table_rows(lake: Lake, name: str) -> Counter[Any]:
    """How often the table has each row; a row is its values, the last the emitting instant."""
    table = DeltaTable(lake.table(name)).to_pyarrow_table()
    return Counter(
        (*(str(row[c]) for c in _columns(name)), micros_of(row["emitted_at"]))
        for row in table.to_pylist()
    )


def oracle_rows(lake: Lake, name: str, until: datetime) -> Counter[Any]:
    """The same of all bronze before an instant, folded by one Python process from the beginning."""
    stream, engine = stream_named(name), LocalEngine()
    fold = load_definition(stream).fold
    pin, until_us = pin_bronze(lake, stream.source), micros_of(until)
    events = engine.events(lake, stream.source, fold, pin.ingested_at_us, None, until_us)
    done = engine.fold(events, fold, 1, until_us, None)
    rows = done.outputs if fold.output_mode == "append" else projected(fold, done.states)
    times = rows["emitted_at_us"].to_pylist()
    values = zip(*(rows[c].to_pylist() for c in _columns(name)), times, strict=True)
    return Counter((*map(str, row[:-1]), row[-1]) for row in values)


def _columns(name: str) -> list[str]:
    return [c.name for c in load_definition(stream_named(name)).fold.output_columns]


def before(rows: Counter[Any], until: datetime) -> Counter[Any]:
    """Those that were emitted before an instant."""
    return Counter({row: n for row, n in rows.items() if instant_of(row[-1]) < until})


# What is kept of them in the archive


def write_expected(folder: Path, lake: Lake) -> None:
    """The tables as they are left, and what bronze comes to with its late rows."""
    for name in STREAMS:
        until = settled(lake, name)
        kept = {
            "until": until.isoformat(),
            "table": _listed(table_rows(lake, name)),
            "bronze": _listed(oracle_rows(lake, name, until)),
        }
        Path(folder, "expected").mkdir(exist_ok=True)
        Path(folder, "expected", f"{name}.json").write_text(json.dumps(kept))


def read_expected(folder: Path, name: str) -> tuple[datetime, Counter[Any], Counter[Any]]:
    """Until when the table was complete, its rows, and what bronze came to."""
    kept = json.loads(Path(folder, "expected", f"{name}.json").read_text())
    counted = (Counter({tuple(row): n for row, n in kept[part]}) for part in ("table", "bronze"))
    table, bronze = counted
    return datetime.fromisoformat(kept["until"]), table, bronze


def settled(lake: Lake, name: str) -> datetime:
    """Before which instant the stream's table is complete."""
    until = settled_until(lake, name)
    assert until is not None
    return until


def _listed(rows: Counter[Any]) -> list[Any]:
    return sorted([list(row), n] for row, n in rows.items())
