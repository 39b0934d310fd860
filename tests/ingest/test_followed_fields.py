"""What becomes of bronze's columns, and of what was rescued, as a source declares other fields."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import DeltaTable

from include.ingest.bronze_tables import add_fields, late_fields, with_late_fields
from include.ingest.ingest import ingest
from include.lake.paths import Lake
from include.settings import Field, Times
from include.streams import sources
from tests.ingest.test_schema_changes import land, row, source
from tests.landed_files import Landing
from tests.refused import refused

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECONDS, MILLIS = Times(format="epoch_s"), Times(format="epoch_ms")
NOTE = Field(name="note", type="string", required=False, comment="Said")
AMOUNT = Field(name="amount", type="bigint", path="body.amount", required=False, comment="Net")


def read(lake: Lake, name: str) -> list[Any]:
    """The column as streams read it, in the order of events."""
    table = DeltaTable(lake.bronze("signals"))
    rows = with_late_fields(table.to_pyarrow_table(), late_fields(table, [name]))
    values: list[Any] = rows.sort_by("event_time")[name].to_pylist()
    return values


# Paths and times


AT = Field(name="at", type="timestamp", times=MILLIS, required=False, comment="When")


@pytest.mark.parametrize("is_dropped", [True, False])
@pytest.mark.parametrize(
    ("field", "changes", "landed_as", "value"),
    [
        (replace(AMOUNT, path="amount"), {"path": "net"}, {"amount": 6, "net": 5}, 5),
        (AT, {"times": SECONDS}, {"at": 1_772_366_400}, NOON),
    ],
)
def test_a_field_that_rows_were_rescued_of_lands_as_it_did_or_gets_another_name(
    lake: Lake,
    landed: Landing,
    field: Field,
    changes: dict[str, Any],
    landed_as: dict[str, Any],
    value: object,
    is_dropped: bool,
):
    land(landed, "0.jsonl", row(0, **landed_as))
    ingest(lake, source())
    ingest(lake, source(field))
    if is_dropped:
        ingest(lake, source())
    land(landed, "1.jsonl", row(1, **landed_as))
    ingest(lake, source())
    version = DeltaTable(lake.bronze("signals")).version()
    with refused("settings_changed", subject=field.name):
        ingest(lake, source(replace(field, **changes)))
    assert DeltaTable(lake.bronze("signals")).version() == version
    other = replace(field, **{"path": field.landed, **changes, "name": "other"})
    ingest(lake, source(other))
    assert read(lake, "other") == [value] * 2


def test_a_field_that_was_dropped_is_read_of_what_landed_meanwhile_once_it_is_declared_again(
    lake: Lake, landed: Landing
):
    land(landed, "0.jsonl", row(0, at=1_772_366_400_000))
    ingest(lake, source(AT))
    land(landed, "1.jsonl", row(1, at=1_772_366_400))
    ingest(lake, source(replace(AT, times=SECONDS)))
    ingest(lake, source())
    land(landed, "2.jsonl", row(2, at=1_772_366_400))
    ingest(lake, source())
    ingest(lake, source(replace(AT, times=SECONDS)))
    assert read(lake, "at") == [NOON] * 3
    with refused("settings_changed", subject="at"):
        ingest(lake, source(AT))


# Names that differ in case alone, of which a table has one


@pytest.mark.parametrize(
    ("had", "name", "code"),
    [
        ([], "Event_Time", "wrong_setting"),
        ([], "_Rescued_Data", "wrong_setting"),
        ([NOTE], "Note", "settings_changed"),
    ],
)
def test_a_field_that_differs_in_case_alone_from_a_column_is_refused(
    lake: Lake, landed: Landing, had: list[Field], name: str, code: str
):
    land(landed, "0.jsonl", row(0, note="a"))
    ingest(lake, source(*had))
    land(landed, "1.jsonl", row(1, **{name: "b"}))
    with refused(code, subject=name):
        ingest(lake, source(replace(NOTE, name=name)))
    assert ingest(lake, source(*had)).rows_bronze == 1


def test_a_field_that_has_just_been_declared_is_read_before_anything_lands(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    land(landed, "0.jsonl", row(0, body={"amount": 5}), row(1))
    ingest(lake, source())
    monkeypatch.setattr(sources, "SOURCES", (source(AMOUNT, NOTE),))
    add_fields(lake, "signals")
    assert (read(lake, "amount"), read(lake, "note")) == ([5, None], [None, None])
