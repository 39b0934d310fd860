"""Avro in a topic: what its bytes say is taken as JSON that says it; what is none is refused alone."""

import base64
import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.connectors import SchemaRegistry
from include.ingest.ingest import ingest
from include.ingest.kafka import Message, judge_of, judged_again, values_of
from include.ingest.landed_avro import schema_of
from include.ingest.landed_values import Rescue
from include.ingest.parse_files import Counts
from include.lake.paths import Lake
from include.settings import Field, Source
from tests.ingested import bronze_of, quarantine_of
from tests.landed_files import START, signal
from tests.refused import refused
from tests.registries import FakeRegistry, running_registry
from tests.topics import FakeTopic, of_topic

pytestmark = pytest.mark.slow

AT = {"type": "long", "logicalType": "timestamp-micros"}
SIGNAL = {
    "type": "record",
    "name": "Signal",
    "namespace": "of.devices",
    "fields": [
        {"name": "device_id", "type": "long"},
        {"name": "timestamp", "type": AT},
        {"name": "value", "type": "long"},
    ],
}
FAR = 2**51  # of ingestion: later than any event here


@pytest.fixture(scope="module")
def serving() -> Iterator[FakeRegistry]:
    with running_registry() as running:
        yield running


@pytest.fixture
def registry(serving: FakeRegistry) -> FakeRegistry:
    schema_of.cache_clear()
    serving.__init__(int(serving.url.rpartition(":")[2]))  # type: ignore[misc]
    return serving


def by_registry(registry: FakeRegistry, **changes: Any) -> Source:
    return of_topic(format="avro", schema_registry=SchemaRegistry(url=registry.url, **changes))


def record(second: int, value: Any = 10) -> dict[str, Any]:
    return {"device_id": 1, "timestamp": START + timedelta(seconds=second), "value": value}


def message(value: bytes) -> Message:
    return Message(0, 0, None, value, [], 0)


# The bytes


def test_the_wire_format_is_that_of_its_documentation(registry: FakeRegistry):
    """Of Avro's specification: the record of a=27, b="foo" is 36 06 66 6f 6f; before it Confluent
    documents a zero and four bytes of the schema's id, the highest first."""
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]
    schema = {"type": "record", "name": "test", "fields": fields}
    registry.schemas[258] = {"schema": json.dumps(schema)}
    value = bytes.fromhex("00 00 00 01 02 36 06 66 6f 6f")
    assert values_of(by_registry(registry))(value) == {"a": 27, "b": "foo"}
    bare = of_topic(format="avro", schema=json.dumps(schema))
    assert values_of(bare)(value[5:]) == {"a": 27, "b": "foo"}


def test_each_message_is_read_by_the_schema_it_was_written_with(
    lake: Lake, topic: FakeTopic, registry: FakeRegistry
):
    """One is asked for once, whatever reads how many of its messages."""
    first = registry.add(SIGNAL)
    more = [*SIGNAL["fields"], {"name": "unit", "type": "string"}]  # type: ignore[misc]
    second = registry.add(SIGNAL | {"fields": more[::-1]})
    for number in range(6):
        of = record(number) | {"unit": "K"}
        topic.produce(number % 2, registry.wire((first, second)[number % 3 == 0], of))
    assert ingest(lake, by_registry(registry)) == Counts(1, 2, 6, 0, 2)
    rows = sorted(bronze_of(lake), key=lambda row: row["event_time"])
    assert [row["event_time"] - START for row in rows] == [timedelta(seconds=n) for n in range(6)]
    rescued = ['{"unit": "K"}', None, None]
    assert [row["_rescued_data"] for row in rows] == rescued * 2
    assert sorted(registry.asked) == [f"/schemas/ids/{number}" for number in (first, second)]


def test_types_that_a_schema_refers_to_are_those_of_its_references(registry: FakeRegistry):
    unit = {"type": "enum", "name": "of.Unit", "symbols": ["K", "C"]}
    pair = {"type": "record", "name": "of.Pair", "fields": [{"name": "unit", "type": "of.Unit"}]}
    whole = {"type": "record", "name": "Whole", "fields": [{"name": "pair", "type": "of.Pair"}]}
    registry.versions = {"unit/3": registry.add(unit)}
    refers = [{"name": "of.Unit", "subject": "unit", "version": 3}]
    registry.versions["pair/1"] = registry.add(pair, references=refers)
    refers = [{"name": "of.Pair", "subject": "pair", "version": 1}]
    used = registry.add(whole, references=refers)
    value = b"\0" + used.to_bytes(4) + b"\x02"
    for _ in range(2):
        assert values_of(by_registry(registry))(value) == {"pair": {"unit": "C"}}
    assert len(registry.asked) == 3


def test_a_schema_is_declared_as_text_or_as_a_file(tmp_path: Path):
    path = tmp_path / "signal.avsc"
    path.write_text(json.dumps(SIGNAL))
    of_file = of_topic(format="avro", schema=str(path))
    assert of_file == of_topic(format="avro", schema=json.dumps(SIGNAL))
    path.unlink()  # workers have no such file
    value = b"\x02\x00\x04"
    assert values_of(of_file)(value)["value"] == 2


# As JSON that says the same


def avro_type(kind: Any) -> Any:
    return ["null", kind]


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
KINDS: dict[str, tuple[str, Any, st.SearchStrategy[Any]]] = {
    "flag": ("boolean", "boolean", st.booleans()),
    "small": ("int", "int", st.integers(-(2**31), 2**31 - 1)),
    "big": ("bigint", "long", st.integers(-(2**63), 2**63 - 1)),
    "ratio": ("double", "double", st.floats(allow_nan=False, allow_infinity=False)),
    "price": ("decimal(9,2)", DECIMAL, st.decimals(-9_999_999, 9_999_999, places=2)),
    "name": ("string", "string", st.text()),
    "blob": ("binary", "bytes", st.binary()),
    "on_day": ("date", {"type": "int", "logicalType": "date"}, st.dates(date(1900, 1, 1))),
    "seen": ("timestamp", AT, st.datetimes(timezones=st.just(UTC))),
    "tags": ("array<string>", {"type": "array", "items": "string"}, st.lists(st.text())),
    "sizes": ("map<string, bigint>", {"type": "map", "values": "long"}, st.dictionaries(st.text(), st.integers(-9, 9))),
    "kind": ("string", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, st.sampled_from("AB")),
    "uuid": ("string", {"type": "string", "logicalType": "uuid"}, st.uuids().map(str)),
    "wall": ("timestamp_ntz", {"type": "long", "logicalType": "local-timestamp-micros"}, st.datetimes()),
    "point": ("struct<x: int>", POINT, st.builds(lambda x: {"x": x}, st.integers(-9, 9))),
    "other": ("", "string", st.text()),  # no field of the source: rescued
}  # fmt: skip
SCHEMA = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "at", "type": AT},
        *({"name": name, "type": avro_type(kind)} for name, (_, kind, _) in KINDS.items()),
    ],
}
OF_JSON = of_topic(
    Source(
        name="signals",
        time_field="at",
        comment="Everything",
        fields=tuple(
            Field(name=name, type=kind, comment="", required=name == "small")
            for name, (kind, *_) in KINDS.items()
            if kind
        ),
    )
)
times = st.datetimes(datetime(1900, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
records = st.fixed_dictionaries(
    {"at": times, **{name: st.none() | values for name, (_, _, values) in KINDS.items()}}
)


def of_json(value: Any) -> Any:
    """As a producer of JSON says it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date) else value


def as_text(record: dict[str, Any]) -> str:
    """Decimals as numbers, with all of their digits."""
    plain = {name: of_json(value) for name, value in record.items()}
    price = plain.pop("price")
    text = json.dumps(plain)
    return text if price is None else f'{text[:-1]}, "price": {price:f}}}'


@given(records)
def test_a_record_is_the_row_that_json_would_be(serving: FakeRegistry, record: dict[str, Any]):
    schema_id = serving.add(SCHEMA)
    of_avro = by_registry(serving)
    of_avro = of_topic(OF_JSON, format="avro", schema_registry=of_avro.connector.schema_registry)  # type: ignore[union-attr]
    taken = [
        judge_of(source, Rescue(source))(message(value), FAR)
        for source, value in (
            (OF_JSON, as_text(record).encode()),
            (of_avro, serving.wire(schema_id, record)),
        )
    ]
    for outcome in taken:
        outcome.pop("raw", None), outcome.pop("kafka_message", None)
    assert taken[0] == taken[1]
    assert (taken[1]["kind"] == "refused") == (record["small"] is None)


@given(records)
def test_a_refused_record_is_kept_as_json_that_can_be_corrected(
    serving: FakeRegistry, record: dict[str, Any]
):
    of_avro = of_topic(OF_JSON, format="avro", schema=json.dumps(SCHEMA))
    value = serving.body(serving.add(SCHEMA), record | {"small": None})
    row = judge_of(of_avro, Rescue(of_avro))(message(value), FAR)
    assert (row["reason_code"], row["reason"]) == ("missing_field", "small")
    assert judged_again(of_avro, row, None, FAR) == row
    mended = json.loads(row["raw"], parse_float=Decimal) | {"small": 7}
    if mended["price"] is not None:
        mended["price"] = str(mended["price"])
    again = judged_again(of_avro, row, json.dumps(mended, default=float), FAR)
    whole = serving.body(serving.add(SCHEMA), record | {"small": 7})
    expected = judge_of(of_avro, Rescue(of_avro))(message(whole), FAR)
    assert (again["kind"], again) == ("accepted", expected)


# What is refused, alone


def test_what_is_no_record_is_quarantined_with_where_it_was(
    lake: Lake, topic: FakeTopic, registry: FakeRegistry
):
    good, empty = registry.add(SIGNAL), registry.add({"type": "record", "name": "e", "fields": []})
    text = registry.add("string")
    proto = registry.add(SIGNAL, schemaType="PROTOBUF")
    endless = [{"name": "next", "type": ["null", "e"]}]
    endless_id = registry.add({"type": "record", "name": "e", "fields": endless})
    wire = registry.wire(good, record(1))
    poison: dict[str, tuple[bytes, str, str]] = {
        "json": (signal(1).encode(), "not_avro", "begins with 7b22646576"),
        "nothing": (b"", "not_avro", "begins with nothing"),
        "no record": (wire[:5], "not_avro", "no record of its schema: EOFError"),
        "cut": (wire[:-1], "not_avro", "no record of its schema"),
        "more": (wire + b"\0\0", "not_avro", "2 bytes behind the record"),
        "unknown": (b"\0\0\0\0\x07abc", "unknown_schema", f"{registry.url} has no schema 7"),
        "no columns": (registry.wire(empty, {}), "missing_field", "device_id"),
        "no record's": (b"\0" + text.to_bytes(4) + b"\0", "unreadable_schema", "no records"),
        "protobuf": (b"\0" + proto.to_bytes(4), "unreadable_schema", "PROTOBUF"),
        "endless": (b"\0" + endless_id.to_bytes(4) + b"\0", "unreadable_schema", "holds itself"),
        "not a date": (registry.wire(good, record(1))[:-3] + b"\xff" * 9 + b"\1\0", "not_avro", ""),
    }
    for value, *_ in poison.values():
        topic.produce(0, wire)
        topic.produce(1, value, key=b"k")
    counts = ingest(lake, by_registry(registry))
    assert (counts.rows_bronze, counts.rows_quarantined) == (len(poison), len(poison))
    rows = quarantine_of(lake)
    assert [row["kafka_offset"] for row in rows] == list(range(len(poison)))
    for row, (_, code, says) in zip(rows, poison.values(), strict=True):
        assert (row["reason_code"], row["kafka_partition"]) == (code, 1)
        assert says in row["reason"]
        assert judged_again(by_registry(registry), row, None, FAR)["reason"] == row["reason"]
        mended = judged_again(by_registry(registry), row, signal(3), FAR)
        assert (mended["kind"], mended["value_value"]) == ("accepted", 10)
        assert row["source_file"] == "signals/1"


def test_an_unknown_schema_is_asked_for_once_a_range_and_found_when_it_is_there(
    lake: Lake, topic: FakeTopic, registry: FakeRegistry
):
    known = registry.add(SIGNAL)
    value = registry.wire(known, record(1))
    later = registry.schemas.pop(known)
    for _ in range(20):
        topic.produce(0, value)
    source = by_registry(registry)
    assert ingest(lake, source).rows_quarantined == 20
    assert len(registry.asked) == 1
    registry.schemas[known] = later
    assert judged_again(source, quarantine_of(lake)[0], None, FAR)["kind"] == "accepted"


# What is loud, and loses nothing


@pytest.mark.parametrize(
    "answers",
    [
        (500, b"{}"),
        (404, b"<html>"),  # of another server
        (404, b'{"error_code": 404}'),
        (200, b"<html>"),
        (200, b"[]"),
    ],
)
def test_a_registry_that_cannot_be_read_stops_the_run_and_the_next_goes_on(
    lake: Lake, topic: FakeTopic, registry: FakeRegistry, answers: Any
):
    topic.produce(0, registry.wire(registry.add(SIGNAL), record(1)))
    registry.answers = answers
    source = by_registry(registry)
    for _ in range(2):
        with refused("unreadable_input", subject=registry.url) as told:
            ingest(lake, source)
        assert "\n" not in str(told.value)
    assert bronze_of(lake) == quarantine_of(lake) == []
    registry.answers = None
    assert ingest(lake, source) == Counts(1, 1, 1, 0)


def test_a_password_of_the_environment_is_given_and_shown_nowhere(
    lake: Lake, topic: FakeTopic, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
):
    topic.produce(0, registry.wire(registry.add(SIGNAL), record(1)))
    registry.user = "me:s3cret"
    source = by_registry(registry, username="me", password_env="TEST_REGISTRY_PASSWORD")
    monkeypatch.delenv("TEST_REGISTRY_PASSWORD", raising=False)
    with refused("wrong_setting", subject="TEST_REGISTRY_PASSWORD"):
        ingest(lake, source)
    monkeypatch.setenv("TEST_REGISTRY_PASSWORD", "wr0ng")
    with refused("unreadable_input") as told:
        ingest(lake, source)
    assert "wr0ng" not in str(told.value)
    monkeypatch.setenv("TEST_REGISTRY_PASSWORD", "s3cret")
    assert ingest(lake, source).rows_bronze == 1
    assert "s3cret" not in repr(source)


def test_a_registry_is_trusted_by_its_certificate(lake: Lake, topic: FakeTopic, tmp_path: Path):
    schema_of.cache_clear()
    keys = tmp_path / "keys.pem"
    named = ["-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-keyout", str(keys), "-out", str(tmp_path / "ca.pem")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *named, *made]
    subprocess.run(command, check=True, capture_output=True)
    keys.write_text(keys.read_text() + (tmp_path / "ca.pem").read_text())
    with running_registry(keys) as registry:
        topic.produce(0, registry.wire(registry.add(SIGNAL), record(1)))
        with refused("unreadable_input"):
            ingest(lake, by_registry(registry))
        trusting = by_registry(registry, ca_file=str(tmp_path / "ca.pem"))
        assert ingest(lake, trusting).rows_bronze == 1


# What is declared


def test_a_declared_schema_that_is_none_stops_before_anything_is_refused(
    lake: Lake, topic: FakeTopic
):
    topic.produce(0, b"\0")
    with refused("wrong_setting", subject="schema"):
        ingest(lake, of_topic(format="avro", schema='{"type": "enum"}'))
    assert quarantine_of(lake) == []
