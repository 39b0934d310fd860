"""A topic without a broker, for tests: what ingestion asks of one, and what a producer does to one."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from include.connectors import KafkaTopic
from include.ingest import kafka
from include.ingest.kafka import Message, Offsets, TopicState
from include.ingest.splits import ConnectorError, Split
from include.settings import Source
from tests.ingested import SIGNALS

TOPIC = KafkaTopic(servers="nowhere:9092", topic="signals")


def of_topic(source: Source = SIGNALS, **changes: Any) -> Source:
    """The source, with the topic for its connector."""
    return replace(source, connector=replace(TOPIC, **changes))


@dataclass
class FakeTopic:
    """Keeps messages by partition; None is an offset without one."""

    topic_id: str = "first"
    partitions: dict[int, list[Message | None]] = field(default_factory=dict)
    earliest: dict[int, int] = field(default_factory=dict)
    stable: dict[int, int] = field(default_factory=dict)  # where a transaction is open

    def produce(self, partition: int, value: bytes | str | None, **more: Any) -> Message:
        log = self.partitions.setdefault(partition, [])
        sent = value.encode() if isinstance(value, str) else value
        known = {"key": None, "headers": [], "timestamp_ms": 1_772_366_400_000} | more
        message = Message(partition=partition, offset=len(log), value=sent, **known)
        log.append(message)
        return message

    def mark(self, partition: int) -> None:
        """An offset that no message has: the end of a transaction."""
        self.partitions.setdefault(partition, []).append(None)

    def expire(self, partition: int, before: int) -> None:
        self.earliest[partition] = before

    def make_anew(self, topic_id: str) -> None:
        self.topic_id, self.partitions, self.earliest = topic_id, {0: []}, {}

    def id(self) -> str:
        return self.topic_id

    def state(self) -> TopicState:
        return TopicState(
            self.topic_id,
            {
                number: Offsets(
                    self.earliest.get(number, 0), self.stable.get(number, len(log)), len(log)
                )
                for number, log in self.partitions.items()
            },
        )

    def read(self, wanted: Split) -> Iterator[Message]:
        log = self.partitions.get(wanted.partition, [])
        if wanted.first < self.earliest.get(wanted.partition, 0) or wanted.until > len(log):
            raise ConnectorError(f"{wanted} is gone")
        yield from filter(None, log[wanted.first : wanted.until])


def served(patch: pytest.MonkeyPatch) -> FakeTopic:
    """The topic that ingestion finds from now on, with one partition."""
    fake = FakeTopic(partitions={0: []})
    patch.setattr(kafka, "open_topic", lambda connector: fake)
    return fake
