"""What becomes of bronze's columns, and of what was rescued, as a source declares other fields."""

from dataclasses import replace
from typing import Any

from deltalake import DeltaTable

from include.lake.paths import Lake
from include.landing.ingest import ingest
from include.landing.late_fields import late_fields, with_late_fields
from include.settings import Field
from tests.landed_files import Landing
from tests.landing.test_schema_changes import land, row, source

AMOUNT = Field(name="amount", type="bigint", path="body.amount", required=False, comment="Net")


def read(lake: Lake, name: str) -> list[Any]:
    """The column as streams read it, in the order of events."""
    table = DeltaTable(lake.bronze("signals"))
    rows = with_late_fields(table.to_pyarrow_table(), late_fields(table, [name]))
    values: list[Any] = rows.sort_by("event_time")[name].to_pylist()
    return values


# Paths


def test_a_renamed_field_is_not_read_under_a_name_that_never_was_its_path(
    lake: Lake, landed: Landing
):
    land(landed, "0.jsonl", row(0, amount=999, body={}), row(1, body={"amount": 5}))
    ingest(lake, source(AMOUNT))
    ingest(lake, source())
    land(landed, "1.jsonl", row(2, amount=999, body={"amount": 6}))
    ingest(lake, source())
    ingest(lake, source(replace(AMOUNT, name="total", was="amount")))
    assert read(lake, "total") == [None, 5, 6]


def test_a_path_that_was_left_while_its_field_was_declared_is_one_that_it_had(
    lake: Lake, landed: Landing
):
    by_name = replace(AMOUNT, path=None)
    land(landed, "0.jsonl", row(0, amount=1))
    ingest(lake, source(by_name))
    land(landed, "1.jsonl", row(1, amount=2), row(2, body={"amount": 3}))
    ingest(lake, source(AMOUNT))
    ingest(lake, source())
    ingest(lake, source(AMOUNT))
    assert read(lake, "amount") == [1, 2, 3]
