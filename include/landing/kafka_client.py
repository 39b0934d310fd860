"""Topics as Kafka's brokers have them, by librdkafka: their offsets, and messages between two."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import lru_cache, partial
from time import monotonic
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from include.landing.connector import OriginError, Split
from include.origins import KafkaTopic, secret

Headers = list[tuple[str, bytes | None]]
MESSAGES_AT_ONCE = 10_000
# What brokers say of a partition for a moment, when one of them has just come or gone.
LEADER_CHANGES = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
# What a broker, or the client for it, says of offsets that it has no longer.
GONE = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}
BETWEEN_ASKING_S = 0.2
# Of a consumer; it joins no group and commits nothing there: the position is the lake's.
READING = {
    "group.id": "stateful-lake",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "check.crcs": True,
    # How long brokers wait for more at the end of a partition, where the end is what we wait for.
    "fetch.wait.max.ms": 50,
    # What is fetched ahead: behind the end of a range it is for nothing.
    "queued.min.messages": 20_000,
}


class Message(NamedTuple):
    """One message, as it was produced."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None


class Offsets(NamedTuple):
    """Where a partition begins and ends."""

    earliest: int
    settled: int  # the end of what no open transaction can still change: what can be taken
    end: int


class TopicState(NamedTuple):
    """A topic when somebody looked: the id that it got when it was made, and its partitions."""

    id: str  # empty: its brokers give none
    partitions: Mapping[int, Offsets]


@lru_cache(maxsize=8)
def open_topic(origin: KafkaTopic) -> "BrokerTopic":
    """The topic, with connections that are kept for this process."""
    return BrokerTopic(origin)


class BrokerTopic:
    """A topic; each method raises OriginError where brokers do not give what it asks for."""

    def __init__(self, origin: KafkaTopic) -> None:
        self._origin = origin
        self._timeout_s = origin.timeout.total_seconds()
        self._heard = ""  # what the client last said of its connections
        self._settings = client_settings(origin) | {"error_cb": self._hear}
        try:
            self._admin = AdminClient(self._settings)
        except KafkaException as error:
            raise self._unreadable(error.args[0].str()) from error

    def _hear(self, error: KafkaError) -> None:
        self._heard = f" ({error.str()})"

    def id(self) -> str:
        """What it was given when it was made; empty where brokers give none."""
        return _id_of(self._described())

    def state(self) -> TopicState:
        """Its id and its offsets, now."""
        described = self._described()
        partitions = [partition.id for partition in described.partitions]
        earliest = self._offsets(partitions, OffsetSpec.earliest(), committed=True)
        settled = self._offsets(partitions, OffsetSpec.latest(), committed=True)
        end = self._offsets(partitions, OffsetSpec.latest(), committed=False)
        offsets = {p: Offsets(earliest[p], settled[p], max(end[p], settled[p])) for p in partitions}
        return TopicState(_id_of(described), offsets)

    def _described(self) -> Any:
        topics = TopicCollection([self._origin.topic])
        timeout_s = self._timeout_s
        found = self._asked(lambda: self._admin.describe_topics(topics, request_timeout=timeout_s))
        return found[self._origin.topic]

    def _offsets(self, partitions: list[int], spec: OffsetSpec, committed: bool) -> dict[int, int]:
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(self._origin.topic, number): spec for number in partitions}
        found = self._asked(
            lambda: self._admin.list_offsets(
                asked, isolation_level=level, request_timeout=self._timeout_s
            )
        )
        return {of.partition: info.offset for of, info in found.items()}

    def _asked(self, ask: Callable[[], dict[Any, Future[Any]]]) -> dict[Any, Any]:
        """The answers. A partition whose leader changes is asked for again until the timeout."""
        end = monotonic() + self._timeout_s
        while True:
            try:
                return {key: future.result() for key, future in ask().items()}
            except KafkaException as error:
                self._admin.poll(0)  # hears what the answer does not say, such as a wrong password
                if error.args[0].code() not in LEADER_CHANGES or monotonic() >= end:
                    raise self._unreadable(error.args[0].str()) from error
            self._admin.poll(BETWEEN_ASKING_S)

    def read(self, wanted: Split) -> Iterator[Message]:
        """All messages of the range that are committed, in order."""
        if wanted.first == wanted.until:
            return
        # One for each range: what another has fetched ahead can end none of these early.
        consumer = Consumer(self._settings | READING)
        try:
            consumer.assign([TopicPartition(wanted.name, wanted.partition, wanted.first)])
            yield from messages_until(partial(self._received, consumer), wanted.until)
        except KafkaException as error:
            code = "lost_input" if error.args[0].code() in GONE else "unreadable_input"
            raise self._unreadable(f"{wanted}: {error.args[0].str()}", code) from error
        finally:
            consumer.close()

    def _received(self, consumer: Any) -> list[Any]:
        """What has come, at least one; OriginError when nothing comes any more."""
        first = consumer.poll(self._timeout_s)
        if first is None:
            raise self._unreadable(f"no answer within {self._origin.timeout}")
        return [first, *consumer.consume(MESSAGES_AT_ONCE, timeout=0)]

    def _unreadable(self, why: str, code: str = "unreadable_input") -> OriginError:
        return OriginError(
            f"topic {self._origin.topic} of {self._origin.servers} cannot be read: "
            f"{why}{self._heard}. A batch "
            "that was begun is repeated by the next run; if it asks for offsets that are gone, see "
            "`./stateful ingest SOURCE --accept-loss`",
            code=code,
            subject=self._origin.topic,
        )


def _id_of(described: Any) -> str:
    return "" if described.topic_id is None else str(described.topic_id)


def messages_until(receive: Callable[[], list[Any]], until: int) -> Iterator[Message]:
    """Those before the offset `until`, of a consumer that gives one partition in order.

    Not each offset has a message: marks of transactions and what was compacted away have none. So
    the end is a message behind it, or the consumer's word that it has come to the partition's end.
    """
    while True:
        for received in receive():
            error = received.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if received.offset() >= until:
                return
            if error is None:
                yield _message(received)


def _message(received: Any) -> Message:
    _, timestamp_ms = received.timestamp()
    return Message(
        received.partition(),
        received.offset(),
        received.key(),
        value=received.value(),
        headers=received.headers() or [],
        timestamp_ms=timestamp_ms if timestamp_ms >= 0 else None,
    )


def client_settings(origin: KafkaTopic) -> dict[str, Any]:
    """As librdkafka names them. SettingsError when a variable of the environment is missing."""
    protocol = ("SASL_" if origin.sasl else "") + ("SSL" if origin.tls else "PLAINTEXT")
    settings = {
        "bootstrap.servers": origin.servers,
        "security.protocol": protocol,
        "ssl.ca.location": origin.ca_file,
        "ssl.certificate.location": origin.certificate_file,
        "ssl.key.location": origin.key_file,
        "ssl.key.password": secret(origin, "key_password_env"),
        "sasl.mechanism": origin.sasl,
        "sasl.username": origin.username,
        "sasl.password": secret(origin, "password_env"),
    }
    return {key: value for key, value in settings.items() if value is not None}
