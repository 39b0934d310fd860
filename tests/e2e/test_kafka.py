"""A real broker: whatever is killed, and whenever, bronze has each message that it should, once."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic
from deltalake import DeltaTable

from include.lake.paths import Lake
from include.lake.process_tree import wait_until
from include.landing.arrivals import OriginError
from include.landing.clock import landing_lag
from include.landing.ingest import RunCounts, ingest
from include.landing.ingest_position import read_position
from include.landing.kafka_client import BrokerTopic, Message, open_topic
from include.landing.kafka_offsets import OffsetRange
from include.landing.skip_lost import apply_skip, plan_skip
from include.origins import KafkaTopic
from include.settings import Source
from tests.e2e.kafka_broker import DEADLINE_S, Broker, running_broker
from tests.e2e.kafka_ingest import source_of
from tests.ingested import bronze_of, quarantine_of
from tests.landed_files import signal

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.xdist_group("kafka")]

SIGKILLED = -9
PRODUCERS = 4
NOW = datetime(2026, 3, 2, tzinfo=UTC)
SHORT = timedelta(seconds=3)
Place = tuple[int, int]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


class Sent:
    """A topic, and what its producers were told that it has: by partition and offset."""

    def __init__(self, broker: Broker, name: str, partitions: int = 3, **config: str) -> None:
        self.broker, self.name, self.bodies = broker, name, dict[Place, str]()
        self._config = config
        self.make(partitions)

    def make(self, partitions: int) -> None:
        new = NewTopic(self.name, partitions, replication_factor=1, config=self._config)
        self.broker.admin.create_topics([new])[self.name].result()

    def delete(self) -> None:
        self.broker.admin.delete_topics([self.name])[self.name].result()

    def source(self, **changes: Any) -> Source:
        return source_of(self.broker.servers, self.name, **changes)

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.broker.servers, "linger.ms": 5} | settings)

    def send(self, producer: Producer, bodies: Sequence[str], partition: int = -1) -> None:
        """Bodies are remembered by where the broker says that it has put them."""

        def delivered(error: Any, message: Any) -> None:
            assert error is None
            self.bodies[message.partition(), message.offset()] = message.value().decode()

        for body in bodies:
            producer.produce(self.name, body, partition=partition, on_delivery=delivered)
            producer.poll(0)
        producer.flush()

    def produce(self, count: int, partition: int = -1) -> None:
        """From several threads at once; each seventh message is poison."""

        def run(number: int) -> None:
            bodies = [
                "{" if index % 7 == 6 else signal(index, number, index) for index in range(count)
            ]
            self.send(self.producer(), bodies, partition)

        with ThreadPoolExecutor(PRODUCERS) as pool:
            list(pool.map(run, range(PRODUCERS)))

    def expire(self, partition: int, before: int) -> None:
        at = TopicPartition(self.name, partition, before)
        self.broker.admin.delete_records([at])[at].result()


def run_killed(lake: Lake, sent: Sent, *where: str) -> int:
    command = ["-m", "tests.e2e.kafka_ingest", lake.root, sent.broker.servers, sent.name, *where]
    run = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert run.returncode in (0, SIGKILLED), run.stderr
    return run.returncode


def check_all_there(lake: Lake, bodies: dict[Place, str]) -> None:
    """In bronze what is a signal, in quarantine what is none: each once, as it was sent."""
    good = {place: body for place, body in bodies.items() if body != "{"}
    rows = bronze_of(lake)
    places = [(row["kafka_partition"], row["kafka_offset"]) for row in rows]
    assert Counter(places) == Counter(good.keys())
    for place, row in zip(places, rows, strict=True):
        body = json.loads(good[place])
        assert (row["device_id"], row["value"]) == (body["device_id"], body["value"])
        assert row["event_time"] == datetime.fromisoformat(body["timestamp"])
    poison = [(row["kafka_partition"], row["kafka_offset"]) for row in quarantine_of(lake)]
    assert sorted(poison) == sorted(bodies.keys() - good.keys())


def test_nothing_is_lost_or_doubled_wherever_the_ingesting_process_is_killed(
    lake: Lake, broker: Broker
):
    sent = Sent(broker, "killed")
    kills = 0
    for number in range(13):
        sent.produce(40)
        kills += run_killed(lake, sent, "--write", str(number), "--batch", "90") == SIGKILLED
        if number % 2:
            where = str(11 * number)
            kills += run_killed(lake, sent, "--message", where, "--batch", "90") == SIGKILLED
    ingest(lake, sent.source())
    check_all_there(lake, sent.bodies)
    assert kills >= 15
    assert ingest(lake, sent.source()) == RunCounts()


def test_producers_go_on_while_runs_are_killed(lake: Lake, broker: Broker):
    sent, is_enough = Sent(broker, "while_produced"), Event()

    def produce() -> None:
        while not is_enough.is_set():
            sent.produce(50)

    with ThreadPoolExecutor(1) as pool:
        producing = pool.submit(produce)
        try:
            for number in range(6):
                run_killed(lake, sent, "--message", str(137 * number), "--batch", "500")
        finally:
            is_enough.set()
        producing.result()
    ingest(lake, sent.source())
    check_all_there(lake, sent.bodies)


def test_a_broker_that_is_killed_while_it_is_read_loses_nothing(
    lake: Lake, broker: Broker, monkeypatch: pytest.MonkeyPatch
):
    sent = Sent(broker, "killed_while_read", **{"flush.messages": "1"})
    for partition in range(3):
        sent.produce(30, partition)
    read = BrokerTopic.read

    def read_and_kill(topic: BrokerTopic, wanted: OffsetRange) -> Iterator[Message]:
        for message in read(topic, wanted):
            if broker.is_running:
                broker.kill()
            yield message

    with monkeypatch.context() as patch:
        patch.setattr(BrokerTopic, "read", read_and_kill)
        try:
            with pytest.raises(OriginError, match=r"killed_while_read of .* cannot be read"):
                ingest(lake, sent.source(timeout=SHORT))
        finally:
            broker.start()
    assert bronze_of(lake) == []
    ingest(lake, sent.source())
    check_all_there(lake, sent.bodies)


def test_a_broker_that_is_killed_stops_the_run_and_the_next_goes_on(lake: Lake, broker: Broker):
    sent = Sent(broker, "restarted", **{"flush.messages": "1"})
    sent.produce(30)
    assert run_killed(lake, sent, "--write", "2") == SIGKILLED  # a batch is begun
    broker.kill()
    try:
        with pytest.raises(OriginError, match=r"topic restarted of .* cannot be read"):
            ingest(lake, sent.source(timeout=SHORT))
    finally:
        broker.start()
    sent.produce(30)
    ingest(lake, sent.source())
    check_all_there(lake, sent.bodies)


def test_expired_records_stop_and_are_skipped_exactly(lake: Lake, broker: Broker):
    sent = Sent(broker, "expired", partitions=2)
    sent.produce(20, partition=0)
    ingest(lake, sent.source())
    sent.produce(20, partition=0)
    sent.produce(20, partition=1)
    sent.expire(0, 100)
    with pytest.raises(OriginError, match=r"lost 20 offsets .*: 20 have expired"):
        ingest(lake, sent.source())
    skip(lake, sent, 20)
    ingest(lake, sent.source())
    lost = {place for place in sent.bodies if place[0] == 0 and 80 <= place[1] < 100}
    check_all_there(lake, {p: body for p, body in sent.bodies.items() if p not in lost})


def test_a_begun_batch_that_expires_half_is_gone_on_with(lake: Lake, broker: Broker):
    sent = Sent(broker, "begun", partitions=1)
    ingest(lake, sent.source())
    sent.produce(20)
    run_killed(lake, sent, "--message", "5")
    assert read_position(lake, "signals").open is not None  # type: ignore[union-attr]
    sent.expire(0, 50)
    with pytest.raises(OriginError, match="skip-lost"):
        ingest(lake, sent.source())
    skip(lake, sent, 50)
    ingest(lake, sent.source())
    check_all_there(lake, {p: body for p, body in sent.bodies.items() if p[1] >= 50})


def skip(lake: Lake, sent: Sent, count: int) -> None:
    plan = plan_skip(lake, sent.source(), NOW)
    assert plan is not None
    assert plan.count == count
    apply_skip(lake, sent.source(), plan)


def test_a_topic_that_is_made_anew_stops_until_it_is_begun_with(lake: Lake, broker: Broker):
    sent = Sent(broker, "anew", partitions=1)
    sent.produce(5)
    ingest(lake, sent.source())
    before = dict(sent.bodies)
    sent.delete()
    with pytest.raises(OriginError, match=r"topic anew of .* cannot be read"):
        ingest(lake, sent.source(timeout=SHORT))
    sent.make(1)
    sent.bodies.clear()
    sent.produce(9)  # more than the old one had: its offsets alone do not tell
    with pytest.raises(OriginError, match="made anew since"):
        ingest(lake, sent.source())
    skip(lake, sent, 0)
    ingest(lake, sent.source())
    places = Counter((row["kafka_partition"], row["kafka_offset"]) for row in bronze_of(lake))
    good = (p for bodies in (before, sent.bodies) for p, body in bodies.items() if body != "{")
    assert places == Counter(good)


def test_an_added_partition_is_taken_from_its_beginning(lake: Lake, broker: Broker):
    sent = Sent(broker, "added", partitions=1)
    sent.produce(10)
    ingest(lake, sent.source())
    broker.admin.create_partitions([NewPartitions(sent.name, 3)])[sent.name].result()
    for partition in range(3):
        sent.produce(10, partition)
    ingest(lake, sent.source())
    check_all_there(lake, sent.bodies)
    assert {row["kafka_partition"] for row in bronze_of(lake)} == {0, 1, 2}


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
    assert ingest(lake, sent.source()) == RunCounts()
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
    whole = OffsetRange(sent.name, 0, 0, 60)
    assert wait_until(lambda: len(list(open_topic(source.origin).read(whole))) < 60, DEADLINE_S)

    def left() -> set[int]:  # of what a broker has that goes on with its compaction
        return {message.offset for message in open_topic(source.origin).read(whole)}

    before = left()
    counts = ingest(lake, source)
    taken = [row["kafka_offset"] for row in bronze_of(lake)]
    assert counts.rows_bronze == len(taken) == len(set(taken)) < 60
    assert left() <= set(taken) <= before
    assert 59 in taken
    assert ingest(lake, source) == RunCounts()


def test_tls_and_a_password_of_the_environment(
    lake: Lake, broker: Broker, monkeypatch: pytest.MonkeyPatch
):
    sent = Sent(broker, "secure")
    sent.produce(10)
    origin = KafkaTopic(
        servers=broker.secure_servers,
        topic=sent.name,
        timeout=SHORT,
        tls=True,
        ca_file=str(broker.ca_file),
        sasl="PLAIN",
        username="me",
        password_env="TEST_KAFKA_PASSWORD",
    )
    source = replace(sent.source(), origin=origin)
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", "wrong")
    with pytest.raises(OriginError, match="Authentication failed") as told:
        ingest(lake, source)
    assert "wrong" not in str(told.value)
    open_topic.cache_clear()
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", broker.password)
    ingest(lake, source)
    check_all_there(lake, sent.bodies)


def test_spark_takes_what_processes_here_take(
    lake: Lake, broker: Broker, spark: Any, tmp_path: Path
):
    from spark_jobs.reingest_quarantine import reingest
    from spark_jobs.tables.landing import parsed_on

    sent = Sent(broker, "on_spark")
    sent.produce(100)
    source = sent.source(commit_messages=150)
    assert run_killed(lake, sent, "--write", "3", "--batch", "150") == SIGKILLED
    ingest(lake, source, parse=parsed_on(spark))
    check_all_there(lake, sent.bodies)
    corrections = {row["quarantine_id"]: signal(1, 77) for row in quarantine_of(lake)[:2]}
    assert reingest(spark, lake, source, corrections, NOW).rows_bronze == 2
    mended = [row for row in bronze_of(lake) if row["device_id"] == 77]
    assert all(sent.bodies[row["kafka_partition"], row["kafka_offset"]] == "{" for row in mended)
    assert DeltaTable(lake.bronze("signals")).to_pyarrow_table().num_rows == len(bronze_of(lake))
