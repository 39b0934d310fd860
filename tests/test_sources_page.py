"""What docs/sources.md shows is what happens."""

import re
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from include.fold.sql_types import SCALARS
from include.landing.landed_file import open_rows, row_of_raw
from include.landing.landed_row import to_event

PAGE = (Path(__file__).parents[1] / "docs" / "sources.md").read_text()
NOON_US = 1_772_366_400_000_000


def block(language: str, number: int = 0) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(found[number])


def test_the_order_is_taken_as_it_is():
    names: dict[str, Any] = {}
    exec(block("python"), names)
    source = names["ORDERS"]
    event = to_event(source, row_of_raw("a.jsonl", block("json"), source), NOON_US)
    assert event.event_time_us == NOON_US
    assert dict(zip([field.name for field in source.fields], event.values, strict=True)) == {
        "order_id": 7,
        "customer_id": "c1",
        "country": "DE",
        "amount": Decimal("19.90"),
        "paid": True,
        "shipped_at": NOON_US,
        "items": [{"sku": "a", "count": 2, "price": Decimal("9.95")}],
    }


def test_the_sale_is_taken_as_it_is():
    names: dict[str, Any] = {}
    exec(block("python", 1), names)
    source, name = names["SALES"], "dt=2026-11-20/till7.csv"
    rows = open_rows(name, block("csv").encode("cp1252"), source)
    (values,) = [rows.values(item) for item in rows.items()]
    assert to_event(source, values, 2 * NOON_US).values == (
        "Köln",
        Decimal("12.50"),
        date(2026, 11, 20),
    )


def test_every_type_has_its_line():
    listed = PAGE[PAGE.index("`type` is") : PAGE.index("`path` is")]
    assert all(f"`{name}`" in listed for name in SCALARS)
