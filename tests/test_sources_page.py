"""What docs/sources.md shows is what happens."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from include.fold.sql_types import SCALARS
from include.landing.bronze_commits import clock_after
from include.landing.clock import Clock
from include.landing.group_clock import no_groups
from include.landing.landed_file import row_of_raw
from include.landing.landed_row import to_event

PAGE = (Path(__file__).parents[1] / "docs" / "sources.md").read_text()
NOON_US = 1_772_366_400_000_000


def block(language: str, number: int = 0) -> str:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[number]


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


def test_the_watermark_of_producers_that_are_apart_is_as_shown():
    names: dict[str, Any] = {}
    exec(block("python", 1), names)
    clock, watermarks = Clock(None, None, no_groups(names["CLICKS"])), []
    shown = re.findall(r"^\| (\d\d:\d\d) \|(.*?)\|(.*?)\| (\d\d:\d\d) \|", PAGE, re.MULTILINE)
    for ingested, german, american, _ in shown:
        given = {"de": german.strip(), "us": american.strip()}
        newest = {name: of_day_us(time) for name, time in given.items() if time}
        clock = clock_after(clock, max(newest.values()), of_day_us(ingested), newest)
        watermarks.append(clock.watermark_us)
    assert watermarks == [of_day_us(watermark) for *_, watermark in shown]
    assert len(watermarks) == 6


def of_day_us(time: str) -> int:
    hour, minute = map(int, time.split(":"))
    return (hour * 60 + minute) * 60_000_000


def test_every_type_has_its_line():
    listed = PAGE[PAGE.index("`type` is") : PAGE.index("`path` is")]
    assert all(f"`{name}`" in listed for name in SCALARS)
