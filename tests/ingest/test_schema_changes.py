"""Producers' rows and sources' fields change, and nothing of a row is lost."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from include.fold.definition import flat_map_groups_with_state
from include.fold.group_state import GroupState
from include.ingest.bronze_tables import add_fields, late_fields, with_late_fields
from include.ingest.formats import JsonRows
from include.ingest.ingest import ingest
from include.ingest.landed_values import (
    RefusedError,
    Rescue,
    read_rescued,
    reader_of_events,
    value_at,
)
from include.ingest.parse_files import Parse
from include.ingest.reingest import reingest
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import RESCUED, Field, Source, Stream, Times
from include.streams import sources
from spark_jobs.engines.packing import Bounds, from_stream
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.restate_interval import restate
from spark_jobs.run_stream import drain
from tests.declared import with_fold
from tests.engines.lake_runs import table_of
from tests.ingested import SIGNALS
from tests.landed_files import START, Landing
from tests.parsers import both_parsers
from tests.refused import refused

pytestmark = pytest.mark.slow

KEY = Field(name="device_id", type="bigint", comment="Device")
VALUE = Field(name="value", type="bigint", comment="Value", required=False)
FAR_AHEAD_US = 2**62


def source(*fields: Field, **settings: Any) -> Source:
    """The source of signals with other fields, a file a commit."""
    return replace(SIGNALS, fields=(KEY, *fields), commit_bytes=1, **settings)


def row(second: float, **fields: Any) -> dict[str, Any]:
    at = (START + timedelta(seconds=second)).isoformat()
    return {"device_id": 1, SIGNALS.time_field: at, **fields}


def land(landed: Landing, name: str, *rows: dict[str, Any]) -> None:
    landed.add(name, [json.dumps(each) for each in rows])


def bronze(lake: Lake) -> list[dict[str, Any]]:
    rows = DeltaTable(lake.bronze("signals")).to_pyarrow_table().to_pylist()
    return sorted((r for r in rows if not r["is_heartbeat"]), key=lambda r: r["event_time"])


def rescued(lake: Lake) -> list[Any]:
    return [each[RESCUED] and json.loads(each[RESCUED]) for each in bronze(lake)]


class Signal(NamedTuple):
    device_id: int
    event_time_us: int
    value: int | None


class Sum(NamedTuple):
    total: int
    rows: int


class Summed(NamedTuple):
    device_id: int
    total: int
    rows: int


def add(device_id: int, signals: Iterator[Signal], state: GroupState[Sum]) -> Iterator[Summed]:
    known = state.get if state.exists else Sum(0, 0)
    for signal in signals:
        known = Sum(known.total + (signal.value or 0), known.rows + 1)
        yield Summed(device_id, *known)
    state.update(known)


FOLD = flat_map_groups_with_state(
    add, key="device_id", event=Signal, state=Sum, output=Summed, output_mode="append"
)
STREAM: Stream = with_fold(
    replace(
        stream_named("device_signals"), buckets=2, state_partitions=1, watermark_delay=timedelta(0)
    ),
    FOLD,
)


def read_column(lake: Lake, name: str) -> list[Any]:
    """The column as streams read it, in the order of events."""
    table = DeltaTable(lake.bronze("signals"))
    rows = with_late_fields(table.to_pyarrow_table(), late_fields(table, [name]))
    values: list[Any] = rows.sort_by("event_time")[name].to_pylist()
    return values


def values_read(lake: Lake) -> list[Any]:
    return read_column(lake, "value")


@both_parsers
def test_what_is_no_field_is_kept_counted_and_told_once(lake: Lake, landed: Landing, parse: Parse):
    land(landed, "0.jsonl", row(0))
    ingest(lake, source(), parse=parse)
    assert rescued(lake) == [None]
    land(
        landed, "1.jsonl", row(1, value=7, note="é"), row(2), row(3, value=None), row(4, value="x")
    )
    land(landed, "2.jsonl", row(5, value=[1, {"a": None}]))

    counts = ingest(lake, source(), parse=parse)

    assert (counts.rows_bronze, counts.rows_rescued) == (5, 3)
    assert rescued(lake)[1:] == [
        {"value": 7, "note": "é"}, None, None, {"value": "x"}, {"value": [1, {"a": None}]}
    ]  # fmt: skip
    land(landed, "3.jsonl", row(6, value=1, new=1))
    assert ingest(lake, source(), parse=parse).rows_rescued == 1
    found = read_ops(lake, "findings", {"finding": "unknown_field"}).sort_by("detail").to_pylist()
    assert [(each["subject"], each["count"], each["detail"].split()[0]) for each in found] == [
        ("signals", 1, '"new"'),
        ("signals", 1, '"note"'),
        ("signals", 3, '"value"'),
    ]


@pytest.mark.parametrize("settings", [{"rescue": False}, {"ignored": ("value", "who.name")}])
def test_what_is_not_wanted_is_not_kept(lake: Lake, landed: Landing, settings: dict[str, Any]):
    land(landed, "0.jsonl", row(0, value=7, who={"name": "ann"}))
    assert ingest(lake, source(**settings)).rows_rescued == 0
    assert rescued(lake) == [None]


@pytest.mark.parametrize(
    ("path", "given", "left"),
    [
        ("who.id", {"who": {"id": 1, "name": "ann"}}, {"who": {"id": 1, "name": "ann"}}),
        ("who.id", {"who": {"id": 1}}, None),
        ("who.id", {"who": {"id": 1, "name": None}}, None),
        ("who.id", {"who": "ann"}, {"who": "ann"}),
        ("who.id", {"who.id": 1, "who": {"id": 2, "x": 3}}, {"who": {"id": 2, "x": 3}}),
        ("a.b.c", {"a": {"b": {"c": 1, "d": 2}}, "e": 3}, {"a": {"b": {"c": 1, "d": 2}}, "e": 3}),
        ("a.b.c", {"a": {"b": {"c": 1}}, "e": None}, None),
        ("value", {"value": {"a": 1}, "x": 1.5}, {"x": 1.5}),
        ("value", {"x": "\ud800"}, {"x": "\ud800"}),
    ],
)
def test_a_value_that_no_path_takes_as_a_whole_is_kept_as_a_whole(
    path: str, given: dict[str, Any], left: Any
):
    text = Rescue(source(replace(VALUE, path=path))).text(row(0, **given))
    assert (text and json.loads(text)) == left
    if text:
        text.encode()


@pytest.mark.parametrize("kind", ["struct<id: bigint>", "array<struct<id: bigint>>"])
def test_what_a_nested_type_has_no_member_for_is_not_kept(kind: str):
    member = {"id": 1, "nick": "a"}
    given = row(0, value=[member] if kind.startswith("array") else member, x=1)
    deeper = Field(name="nick", type="string", path="value.nick", required=False, comment="It")
    text = Rescue(source(replace(VALUE, type=kind), deeper)).text(given)
    assert text == '{"x": 1}'


def test_columns_of_csv_and_parquet_are_kept(lake: Lake, landed: Landing):
    at = START.isoformat()
    landed.add("0.csv", f"device_id,timestamp,value,note\n1,{at},7,\n")
    sink = io.BytesIO()
    later = START + timedelta(seconds=1)
    columns = {"device_id": [1], "timestamp": pa.array([later], pa.timestamp("us", "UTC"))}
    pq.write_table(pa.table({**columns, "value": [8], "on": [later.date()], "b": [b"\0"]}), sink)
    landed.add("1.parquet", sink.getvalue())
    ingest(lake, source())
    assert rescued(lake) == [{"value": "7"}, {"value": 8, "on": "2026-03-01", "b": "AA=="}]
    ingest(lake, source(VALUE))
    assert values_read(lake) == [7, 8]


# Declared later


def test_a_field_that_is_declared_later_is_read_of_older_rows_too(lake: Lake, landed: Landing):
    land(landed, "0.jsonl", row(0, value=7), row(1), row(2, value="x"), row(3, value=2**70))
    ingest(lake, source())
    land(landed, "1.jsonl", row(4, value=8), row(5, value=None))
    files = set(DeltaTable(lake.bronze("signals")).file_uris())

    assert ingest(lake, source(VALUE)).rows_rescued == 0

    # What is no bigint is null; the text stays in `rescued`.
    assert values_read(lake) == [7, None, None, None, 8, None]
    assert files < set(DeltaTable(lake.bronze("signals")).file_uris())  # none was rewritten
    assert [each["value"] for each in bronze(lake)] == [None] * 4 + [8, None]


@given(
    st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers() | st.text() | st.none() | st.booleans())),
    st.sampled_from(["bigint", "string", "boolean", "double"]),
)  # fmt: skip
def test_what_is_read_of_the_rescued_is_what_ingestion_would_have_taken(
    rows: list[dict[str, Any]], kind: str
):
    field = Field(name="x", type=kind, path="b", comment="It", required=False)
    before, after = Rescue(source()), source(field)
    found = read_rescued(kind, "b", [before.text(row(0, **each)) for each in rows])
    for each, value in zip(rows, found, strict=True):
        try:
            expected = reader_of_events(after)(row(0, **each), FAR_AHEAD_US).values[1]
        except RefusedError:
            # As in a CSV, which has nothing but text.
            is_text = isinstance(value_at("b")(each), str)
            assert value is None or is_text
            continue
        assert value == expected


@pytest.mark.parametrize("fields", [(), (Field(name="price", type="decimal(9,2)", comment="It"),)])
@pytest.mark.parametrize(
    ("kind", "landed_as", "expected"),
    [
        ("decimal(4,2)", "9.99", Decimal("9.99")),
        ("decimal(38,9)", "12345678901234567890.123456789", Decimal("12345678901234567890.123456789")),
        ("array<decimal(4,2)>", "[9.99, 1e1]", [Decimal("9.99"), Decimal("10.00")]),
        ("struct<x: double>", '{"x": 1.5}', {"x": 1.5}),
        ("array<double>", "[0.10000000000000001, 1]", [0.1, 1.0]),
        ("map<string, float>", '{"k": 0.50}', [("k", 0.5)]),
    ],
)  # fmt: skip
def test_numbers_are_rescued_to_the_last_digit_whatever_the_source_has(
    fields: tuple[Field, ...], kind: str, landed_as: str, expected: object
):
    before = source(*fields)
    text = f'{{"{SIGNALS.time_field}": "{START.isoformat()}", "price": 1.5, "b": {landed_as}}}'
    rescued = Rescue(before).text(JsonRows("", before).values(text))
    assert read_rescued(kind, "b", [rescued]) == [expected]


# Refused


@pytest.mark.parametrize(
    "field",
    [
        replace(VALUE, type="string"),
        replace(VALUE, type="int"),
        replace(VALUE, type="decimal(20,0)"),
        replace(VALUE, name="new", required=True),
    ],
)
def test_other_changes_are_refused_before_anything_is_taken(
    lake: Lake, landed: Landing, field: Field
):
    land(landed, "0.jsonl", row(0, value=1))
    ingest(lake, source(VALUE))
    land(landed, "1.jsonl", row(1, value=2))
    version = DeltaTable(lake.bronze("signals")).version()
    with refused("settings_changed", subject=field.name):
        ingest(lake, source(field))
    assert DeltaTable(lake.bronze("signals")).version() == version
    assert ingest(lake, source(VALUE)).rows_bronze == 1


# Streams


def drained(spark: SparkSession, lake: Lake) -> list[tuple[int, int]]:
    """Number of rows and total, as the stream went on."""
    drain(SparkEngine(spark), lake, STREAM)
    return sorted((rows, total) for (_, total, rows), _ in table_of(lake, STREAM, FOLD))


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.turn(1)
def test_a_stream_reads_late_fields_live_in_replays_and_from_savepoints(
    spark: SparkSession, lake: Lake, landed: Landing
):
    day = 86_400.0
    steps: list[tuple[Field, ...]] = [(), (VALUE,), (), (VALUE,)]
    for number, fields in enumerate(steps):
        land(landed, f"{number}.jsonl", row(number * day, value=10**number), row(number * day + 1))
        ingest(lake, source(*fields))
    drained(spark, lake)
    land(landed, "4.jsonl", row(4 * day, value=10_000))
    ingest(lake, source(*steps[-1]))

    live = drained(spark, lake)

    totals = [1, 1, 11, 11, 111, 111, 1_111, 1_111, 11_111]
    assert live == list(enumerate(totals, start=1))
    assert values_read(lake) == [1, None, 10, None, 100, None, 1_000, None, 10_000]
    packed = SparkEngine(spark).events(lake, "signals", FOLD, Bounds(FAR_AHEAD_US)).pack(FOLD, [0])
    events = pa.concat_tables(from_stream(row["events"]) for row in packed.collect())
    assert events.sort_by("event_time_us")["value"].to_pylist() == values_read(lake)
    for number in range(1, 4):
        start = START + timedelta(days=number)
        restate(SparkEngine(spark), lake, STREAM, start, start + timedelta(days=1))
        assert drained(spark, lake) == live


def test_a_row_that_is_taken_in_again_keeps_what_is_no_field(lake: Lake, landed: Landing):
    land(landed, "0.jsonl", row(0, device_id="x"))
    ingest(lake, source())
    (refused,) = DeltaTable(lake.quarantine("signals")).to_pyarrow_table().to_pylist()
    corrections = {refused["quarantine_id"]: json.dumps(row(0, value=7))}
    assert reingest(lake, source(), corrections, datetime.now(UTC)).rows_bronze == 1
    assert rescued(lake) == [{"value": 7}]


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECONDS, MILLIS = Times(format="epoch_s"), Times(format="epoch_ms")
NOTE = Field(name="note", type="string", required=False, comment="Said")
AMOUNT = Field(name="amount", type="bigint", path="body.amount", required=False, comment="Net")


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
    assert read_column(lake, "other") == [value] * 2


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
    assert read_column(lake, "at") == [NOON] * 3
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
    assert (read_column(lake, "amount"), read_column(lake, "note")) == ([5, None], [None, None])
