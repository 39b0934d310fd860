"""What becomes of a message: its value, what else it has as fields, and what is refused."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

from include.connectors import KafkaTopic
from include.ingest.bronze_tables import late_fields, with_late_fields
from include.ingest.ingest import ingest
from include.ingest.kafka import as_json, client_settings, judge_of, judged_again, message_of
from include.ingest.landed_values import Rescue
from include.ingest.parse_files import Counts
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.settings import Field, Source, Times
from tests.ingested import bronze_of, quarantine_of
from tests.landed_files import signal
from tests.refused import refused
from tests.topics import TOPIC, FakeTopic, of_topic

SOURCE = Source(
    name="signals",
    time_field="_kafka.timestamp",
    comment="Orders",
    connector=TOPIC,
    times=Times(format="epoch_s"),
    fields=(
        Field(name="customer", type="string", path="_kafka.key", comment="Who"),
        Field(name="trace", type="string", path="_kafka.headers.trace", comment="", required=False),
        Field(name="headers", type="map<string, string>", path="_kafka.headers", comment=""),
        Field(name="shard", type="int", path="_kafka.partition", comment=""),
        Field(name="at", type="bigint", path="_kafka.offset", comment=""),
        Field(name="amount", type="decimal(6,2)", comment=""),
    ),
)


def test_what_a_message_has_beside_its_value_can_be_fields(lake: Lake, topic: FakeTopic):
    topic.produce(0, '{"amount": 1.10}', key=b"anna", headers=[("trace", b"t1"), ("x", None)])
    # No member of the value stands for it.
    topic.produce(0, '{"amount": 2, "_kafka.key": "eve", "_kafka": {"key": "eve"}}', key=b"ben")
    assert ingest(lake, SOURCE).rows_bronze == 2
    first, second = sorted(bronze_of(lake), key=lambda row: row["at"])
    assert first["event_time"] == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert (first["customer"], first["trace"], str(first["amount"])) == ("anna", "t1", "1.10")
    assert dict(first["headers"]) == {"trace": "t1", "x": None}
    assert (first["shard"], first["at"]) == (first["kafka_partition"], first["kafka_offset"])
    assert (second["customer"], second["trace"], second["at"]) == ("ben", None, 1)
    retained = {"value._kafka.key": "eve", "value._kafka": {"key": "eve"}}
    assert (first["_rescued_data"], json.loads(second["_rescued_data"])) == (None, retained)


def test_members_that_are_called_as_the_messages_own_are_kept_and_never_read_as_these(
    lake: Lake, topic: FakeTopic
):
    source = of_topic()
    value = json.loads(signal(0)) | {"_kafka": {"headers": {"trace": "eve"}}}
    topic.produce(0, json.dumps(value), headers=[("trace", b"t1")])
    assert ingest(lake, source).rows_rescued == 1
    trace = Field(
        name="trace", type="string", path="_kafka.headers.trace", comment="", required=False
    )
    ingest(lake, replace(source, fields=(*source.fields, trace)))
    table = DeltaTable(lake.bronze("signals"))
    late = late_fields(table, ["trace"])
    assert with_late_fields(table.to_pyarrow_table(), late)["trace"].to_pylist() == [None]
    (row,) = bronze_of(lake)
    assert json.loads(row["_rescued_data"]) == {"value._kafka": {"headers": {"trace": "eve"}}}


@pytest.mark.parametrize(
    ("value", "code", "raw"),
    [
        (b"{", "not_json", "{"),
        (b"", "not_json", ""),
        (b"[]", "not_an_object", "[]"),
        (b"\xff1", "not_utf8", "\\xff1"),
        (None, "tombstone", None),
        (b"{}", "missing_field", "{}"),
    ],
)
def test_poison_is_quarantined_with_where_it_was(lake: Lake, topic: FakeTopic, value, code, raw):
    topic.produce(0, signal(0))
    sent = topic.produce(0, value, key=b"\xfe", headers=[("a", b"b"), ("a", b"\xff")])
    assert ingest(lake, of_topic()) == Counts(1, 1, 1, 1)
    (row,) = quarantine_of(lake)
    assert (row["reason_code"], row["raw"]) == (code, raw)
    assert (row["source_file"], row["row_number"]) == ("signals/0", 2)
    assert (row["kafka_partition"], row["kafka_offset"]) == (0, 1)
    assert message_of(row, None) == sent


def test_a_refused_message_is_judged_again_as_it_was_or_corrected(topic: FakeTopic):
    sent = topic.produce(0, b"{", key=b"k")
    row = judge_of(SOURCE, Rescue(SOURCE))(sent, 2**51)
    assert judged_again(SOURCE, row, None, 2**51) == row
    mended = judged_again(SOURCE, row, '{"amount": 3}', 2**51)
    assert (mended["kind"], mended["value_customer"]) == ("accepted", "k")
    assert as_json(sent) == row["kafka_message"]


def test_tombstones_are_passed_over_and_counted_where_that_is_declared(
    lake: Lake, topic: FakeTopic
):
    for value in (signal(0), None, None):
        topic.produce(0, value)
    source = of_topic(tombstones="skip")
    assert ingest(lake, source) == Counts(1, 1, 1, 0)
    (found,) = read_ops(lake, "findings").to_pylist()
    assert (found["finding"], found["count"]) == ("tombstones_skipped", 2)
    assert ingest(lake, source) == Counts()


# What is declared


def test_secrets_come_from_the_environment_and_are_shown_nowhere(monkeypatch):
    secure = KafkaTopic(
        servers="a:1",
        topic="t",
        tls=True,
        ca_file="/ca",
        sasl="SCRAM-SHA-512",
        username="me",
        password_env="TEST_KAFKA_PASSWORD",
    )
    monkeypatch.delenv("TEST_KAFKA_PASSWORD", raising=False)
    with refused("wrong_setting", subject="TEST_KAFKA_PASSWORD"):
        client_settings(secure)
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", "s3cret")
    assert client_settings(secure) == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/ca",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "s3cret",
    }
    assert "s3cret" not in repr(secure)
