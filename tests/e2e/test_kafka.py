"""A real broker: whatever is killed, and whenever, bronze has each message that it should, once."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from include.connectors import KafkaTopic, SchemaRegistry
from include.ingest.ingest import ingest, landing_lag
from include.ingest.kafka import open_topic
from include.ingest.parse_files import Counts
from include.ingest.reingest import reingest
from include.ingest.splits import Split
from include.lake.lease import wait_until
from include.lake.paths import Lake
from tests.e2e.kafka_broker import DEADLINE_S, Broker, running_broker
from tests.e2e.kafka_cuts import FAULTS, cut_of, run_cut
from tests.e2e.kafka_topics import (
    NOW,
    SHORT,
    SIGKILLED,
    Sent,
    check_all_there,
    is_poison,
    run_killed,
)
from tests.faults.trial import MISSED
from tests.ingested import bronze_of, quarantine_of
from tests.landed_files import signal
from tests.refused import refused
from tests.registries import running_registry

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.xdist_group("kafka")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


def test_only_committed_transactions_are_taken_and_an_open_one_is_waited_for(
    lake: Lake, broker: Broker
):
    sent = Sent(broker, "transactions", partitions=1)
    producer = sent.producer(**{"transactional.id": "t"})
    producer.init_transactions()
    for number, is_committed in enumerate([True, False, True, False]):
        producer.begin_transaction()
        known = dict(sent.bodies)
        sent.send(producer, [signal(number, 1, value) for value in range(5)])
        if is_committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
            sent.bodies = known
        ingest(lake, sent.source())
        check_all_there(lake, sent.bodies)
    producer.begin_transaction()
    known = dict(sent.bodies)
    sent.send(producer, [signal(9)])
    later, sent.bodies = sent.bodies, known
    assert ingest(lake, sent.source()) == Counts()
    check_all_there(lake, sent.bodies)
    assert "a transaction is open" in str(landing_lag(lake, sent.source()))
    producer.commit_transaction()
    ingest(lake, sent.source())
    check_all_there(lake, later)


def test_a_compacted_topic_ends_where_it_was_planned_to(lake: Lake, broker: Broker):
    sent = Sent(
        broker,
        "compacted",
        partitions=1,
        **{"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"},
    )
    producer = sent.producer()
    for number in range(60):
        # A second apart, as the broker sees it: each is a segment of its own.
        at_ms = 1_772_366_400_000 + number * 1000
        producer.produce(sent.name, signal(number), key="k", timestamp=at_ms)
        producer.flush()
    source = sent.source()
    whole = Split(sent.name, 0, 0, 60)
    assert wait_until(lambda: len(list(open_topic(source.connector).read(whole))) < 60, DEADLINE_S)

    def left() -> set[int]:  # of what a broker has that goes on with its compaction
        return {message.offset for message in open_topic(source.connector).read(whole)}

    before = left()
    counts = ingest(lake, source)
    taken = [row["kafka_offset"] for row in bronze_of(lake)]
    assert counts.rows_bronze == len(taken) == len(set(taken)) < 60
    assert left() <= set(taken) <= before
    assert 59 in taken
    assert ingest(lake, source) == Counts()


def test_tls_and_a_password_of_the_environment(
    lake: Lake, broker: Broker, monkeypatch: pytest.MonkeyPatch
):
    sent = Sent(broker, "secure")
    sent.produce(10)
    connector = KafkaTopic(
        servers=broker.secure_servers,
        topic=sent.name,
        timeout=SHORT,
        tls=True,
        ca_file=str(broker.ca_file),
        sasl="PLAIN",
        username="me",
        password_env="TEST_KAFKA_PASSWORD",
    )
    source = replace(sent.source(), connector=connector)
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", "wrong")
    with refused("unreadable_input", subject=sent.name) as told:
        ingest(lake, source)
    assert "wrong" not in str(told.value)
    open_topic.cache_clear()
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", broker.password)
    ingest(lake, source)
    check_all_there(lake, sent.bodies)


def test_spark_takes_what_processes_here_take(
    lake: Lake, broker: Broker, spark: Any, tmp_path: Path
):
    from spark_jobs.tables.landing import parsed_on

    sent = Sent(broker, "on_spark")
    sent.produce(100)
    source = sent.source(commit_messages=150)
    assert run_killed(lake, sent, "--write", "3", "--batch", "150") == SIGKILLED
    ingest(lake, source, parse=parsed_on(spark))
    check_all_there(lake, sent.bodies)
    corrections = {row["quarantine_id"]: signal(1, 77) for row in quarantine_of(lake)[:2]}
    assert reingest(lake, source, corrections, NOW).rows_bronze == 2
    mended = [row for row in bronze_of(lake) if row["device_id"] == 77]
    places = [(row["kafka_partition"], row["kafka_offset"]) for row in mended]
    assert all(is_poison(sent.bodies[place]) for place in places)
    assert DeltaTable(lake.bronze("signals")).to_pyarrow_table().num_rows == len(bronze_of(lake))


@pytest.mark.parametrize("seed", range(1, 1 + len(FAULTS)))
def test_a_cut_of_make_faults(lake: Lake, broker: Broker, spark: Any, seed: int):
    cut = cut_of(seed)  # a batch without a refused row has fewer writes than may be drawn
    assert run_cut(cut, lake, broker, lambda: spark).ended != MISSED or cut.place == "write"


def test_avro_is_taken_here_and_by_spark_with_a_request_for_each_schema(
    lake: Lake, broker: Broker, spark: Any
):
    from spark_jobs.tables.landing import parsed_on

    sent = Sent(broker, "avro", partitions=2)
    producer = sent.producer()
    at = {"type": "long", "logicalType": "timestamp-micros"}
    kinds = {"device_id": "long", "timestamp": at, "value": "long"}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    with running_registry() as registry:
        schema_id = registry.add({"type": "record", "name": "Signal", "fields": fields})
        by_id = SchemaRegistry(url=registry.url)
        source = sent.source(format="avro", schema_registry=by_id, commit_messages=80)

        def produce(first: int) -> None:
            for value in range(first, first + 100):
                record = {"device_id": 1, "timestamp": NOW, "value": value}
                wire = registry.wire(schema_id, record)
                producer.produce(sent.name, wire if value % 7 else b"\0\0\0\0\x09?")
            producer.flush()

        produce(0)
        ingest(lake, source)
        assert registry.asked.count(f"/schemas/ids/{schema_id}") == 1
        # Of the unknown one, each range of a batch that has one.
        assert 0 < registry.asked.count("/schemas/ids/9") <= 4
        produce(100)
        ingest(lake, source, parse=parsed_on(spark))
        assert set(registry.asked) == {f"/schemas/ids/{number}" for number in (schema_id, 9)}
    taken = sorted(row["value"] for row in bronze_of(lake))
    assert taken == [value for value in range(200) if value % 7]
    refused = quarantine_of(lake)
    assert {row["reason_code"] for row in refused} == {"unknown_schema"}
    assert len(taken) + len(refused) == 200
