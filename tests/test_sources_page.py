"""The examples of docs/sources.md behave as it says."""

import re
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from include.fold.records import SCALARS
from include.ingest.formats import open_rows, row_of_raw
from include.ingest.ingest import ingest
from include.ingest.landed_values import reader_of_events
from include.ingest.parse_files import outcomes_of_content, value_columns
from include.ingest.watermark import SourceWatermark, advance_watermark, logged_groups
from include.lake.ops import read_ops
from include.settings import Source
from tests.ingested import rows_of
from tests.topics import served

PAGE = (Path(__file__).parents[1] / "docs" / "sources.md").read_text()
NOON_US = 1_772_366_400_000_000


def block(language: str, number: int = 0) -> str:
    return blocks(language)[number]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def declared(name: str) -> Source:
    imports, *examples = blocks("python")
    names: dict[str, Any] = {}
    exec(imports, names)
    exec(next(text for text in examples if f"{name} = Source(" in text), names)
    return names[name]


def test_the_order_is_taken_as_it_is():
    source = declared("ORDERS")
    event = reader_of_events(source)(row_of_raw("a.jsonl", block("json"), source), NOON_US)
    assert event.event_time_us == NOON_US
    assert dict(zip([field.name for field in source.fields], event.values, strict=True)) == {
        "order_id": 7,
        "customer_id": "c1",
        "amount": Decimal("19.90"),
        "paid": True,
        "shipped_at": NOON_US,
        "items": [{"sku": "a", "count": 2, "price": Decimal("9.95")}],
    }


def test_the_watermark_of_producers_that_are_apart_is_as_shown():
    clock, watermarks = SourceWatermark(None, None, logged_groups({}, declared("CLICKS"))), []
    shown = re.findall(r"^\| (\d\d:\d\d) \|(.*?)\|(.*?)\| (\d\d:\d\d) \|", PAGE, re.MULTILINE)
    for ingested, german, american, _ in shown:
        given = {"de": german.strip(), "us": american.strip()}
        newest = {name: of_day_us(time) for name, time in given.items() if time}
        clock = advance_watermark(clock, max(newest.values()), of_day_us(ingested), newest)
        watermarks.append(clock.watermark_us)
    assert watermarks == [of_day_us(watermark) for *_, watermark in shown]
    assert len(watermarks) == 6


def of_day_us(time: str) -> int:
    hour, minute = map(int, time.split(":"))
    return (hour * 60 + minute) * 60_000_000


def test_the_payment_is_taken_as_it_is(lake, monkeypatch):
    source, topic = declared("PAYMENTS"), served(monkeypatch)
    topic.produce(
        0,
        next(text for text in blocks("json") if "paid_at" in text),
        key=b"c1",
        headers=[("trace", b"t-7")],
    )
    topic.produce(0, None, key=b"c1")
    assert ingest(lake, source).rows_bronze == 1
    (row,) = rows_of(lake.bronze("payments"))
    assert (row["customer_id"], row["trace"], row["amount"]) == ("c1", "t-7", Decimal("19.90"))
    assert (row["source_file"], row["kafka_offset"]) == ("payments/0", 0)
    (found,) = read_ops(lake, "findings").to_pylist()
    assert found["finding"] == "tombstones_skipped"


def test_the_sale_is_taken_as_it_is():
    source, name = declared("SALES"), "dt=2026-11-20/till7.csv"
    content = block("csv").encode("cp1252")
    sale, _ = outcomes_of_content(
        partial(open_rows, name, content, source), source, name, 2 * NOON_US
    )
    found = list(map(sale.get, value_columns(source)))
    assert found == ["Köln", Decimal("12.50"), date(2026, 11, 20)]


def test_the_test_of_a_source_passes():
    names: dict[str, Any] = {}
    exec(next(text for text in blocks("python") if "def test_" in text), names)
    names["test_a_row_needs_its_time"]()


def test_every_type_has_its_line():
    listed = PAGE[PAGE.index("| `type` |") : PAGE.index("**Times.**")]
    assert all(f"`{name}`" in listed for name in SCALARS)
