"""A topic of a real broker for tests: what its producers sent, what killed runs took of it."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import Event
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from include.lake.paths import Lake
from include.settings import Source
from tests.e2e.kafka_broker import Broker
from tests.e2e.kafka_ingest import source_of
from tests.ingested import bronze_of, quarantine_of
from tests.landed_files import signal

SIGKILLED = -9
PRODUCERS = 4
NOW = datetime(2026, 3, 2, tzinfo=UTC)
SHORT = timedelta(seconds=3)
Place = tuple[int, int]


class Sent:
    """A topic, and what its producers were told that it has: by partition and offset."""

    def __init__(self, broker: Broker, name: str, partitions: int = 3, **config: str) -> None:
        self.broker, self.name, self.bodies = broker, name, dict[Place, str]()
        self.all: list[str] = []  # also of topics of this name before
        self._config, self._numbers = config, count()
        self.make(partitions)

    def make(self, partitions: int) -> None:
        new = NewTopic(self.name, partitions, replication_factor=1, config=self._config)
        self.broker.admin.create_topics([new])[self.name].result()

    def source(self, **changes: Any) -> Source:
        return source_of(self.broker.servers, self.name, **changes)

    def producer(self, **settings: Any) -> Producer:
        known = {"bootstrap.servers": self.broker.servers, "linger.ms": 5}
        # What is sent again, as its answer was lost with a broker, is stored once.
        return Producer(known | {"enable.idempotence": True, "log_level": 0} | settings)

    def send(self, producer: Producer, bodies: Sequence[str], partition: int = -1) -> None:
        """Bodies are remembered by where the broker says that it has put them."""

        def delivered(error: Any, message: Any) -> None:
            assert error is None
            body = message.value().decode()
            self.bodies[message.partition(), message.offset()] = body
            self.all.append(body)

        for body in bodies:
            producer.produce(self.name, body, partition=partition, on_delivery=delivered)
            producer.poll(0)
        producer.flush()

    def produce(self, count: int, partition: int = -1) -> None:
        """From several threads at once, no two bodies the same; each seventh message is poison."""

        def run(number: int) -> None:
            bodies = [self._body(index, number) for index in range(count)]
            self.send(self.producer(), bodies, partition)

        with ThreadPoolExecutor(PRODUCERS) as pool:
            list(pool.map(run, range(PRODUCERS)))

    def _body(self, second: int, device_id: int) -> str:
        value = next(self._numbers)
        return f"{{{value}" if second % 7 == 6 else signal(second, device_id, value)


def is_poison(body: str) -> bool:
    return not body.endswith("}")


def run_disturbed(lake: Lake, sent: Sent, *where: str) -> "subprocess.CompletedProcess[str]":
    """A run in a process of its own, to which `where` something is done (kafka_ingest.py)."""
    command = ["-m", "tests.e2e.kafka_ingest", lake.root, sent.broker.servers, sent.name, *where]
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)


def run_killed(lake: Lake, sent: Sent, *where: str) -> int:
    run = run_disturbed(lake, sent, *where)
    assert run.returncode in (0, SIGKILLED), run.stderr
    return run.returncode


@contextmanager
def going_on(sent: Sent, count: int) -> Iterator[None]:
    """Producers send until the end of the block."""
    is_enough = Event()

    def produce() -> None:
        while not is_enough.is_set():
            sent.produce(count)

    with ThreadPoolExecutor(1) as pool:
        producing = pool.submit(produce)
        try:
            yield
        finally:
            is_enough.set()
        producing.result()


def check_all_there(lake: Lake, bodies: dict[Place, str]) -> None:
    """In bronze what is a signal, in quarantine what is none: each once, as it was sent."""
    good = {place: body for place, body in bodies.items() if not is_poison(body)}
    rows = bronze_of(lake)
    places = [(row["kafka_partition"], row["kafka_offset"]) for row in rows]
    assert Counter(places) == Counter(good.keys())
    for place, row in zip(places, rows, strict=True):
        body = json.loads(good[place])
        assert (row["device_id"], row["value"]) == (body["device_id"], body["value"])
        assert row["event_time"] == datetime.fromisoformat(body["timestamp"])
    poison = [(row["kafka_partition"], row["kafka_offset"]) for row in quarantine_of(lake)]
    assert sorted(poison) == sorted(bodies.keys() - good.keys())
