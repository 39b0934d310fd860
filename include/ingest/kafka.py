"""The connector of a topic: ranges of its offsets are splits, and each message becomes a row.

A partition goes on where the newest batch that has a split of it ends. So ingestion goes on behind a
loss by a batch of no rows, which says where (source_connector.py).
"""

import base64
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, lru_cache, partial
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

from include.connectors import MESSAGE, KafkaTopic, SchemaRegistry, secret
from include.ingest.formats import JsonRows
from include.ingest.landed_avro import BROKEN, Schema, broken, read_record, read_schema, schema_of
from include.ingest.landed_values import (
    Instant,
    RefusedError,
    Rescue,
    Row,
    Text,
    is_read_of_text,
    json_text,
)
from include.ingest.parse_files import REFUSED, judge_of_rows, quarantine_id, with_counts
from include.ingest.source_connector import SplitsConnector
from include.ingest.splits import (
    Batch,
    ConnectorError,
    Done,
    Lag,
    Loss,
    NextSplits,
    Outcome,
    ReadSplit,
    Split,
)
from include.lake.errors import SettingsError
from include.settings import Source
from include.text_table import counted

MESSAGES_AT_ONCE = 10_000
# What brokers say of a partition for a moment, when one of them has just come or gone.
LEADER_CHANGES = {
    *(KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION),
    *(KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH),
}
BETWEEN_ASKING_S = 0.2
# The consumer joins no group and commits no offset: those that are done are in the ingest log.
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
    """A message, as it was produced."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int | None


class Offsets(NamedTuple):
    """The beginning and the ends of a partition."""

    earliest: int
    stable: int  # the end of what no open transaction can still change: what can be read
    end: int


class TopicState(NamedTuple):
    id: str
    partitions: Mapping[int, Offsets]


@lru_cache(maxsize=8)
def open_topic(connector: KafkaTopic) -> "BrokerTopic":
    return BrokerTopic(connector)


class BrokerTopic:
    """A topic; each method raises ConnectorError where brokers do not answer as they should."""

    def __init__(self, connector: KafkaTopic) -> None:
        self._connector = connector
        self._timeout_s = connector.timeout.total_seconds()
        self._heard = ""  # what the client last said of its connections
        self._settings = client_settings(connector) | {"error_cb": self._hear}
        try:
            self._admin = AdminClient(self._settings)
        except KafkaException as error:
            raise self._unreadable(error.args[0].str()) from error

    def _hear(self, error: KafkaError) -> None:
        self._heard = f" ({error.str()})"

    def id(self) -> str:
        """The id that the topic got when it was made; its name where brokers give none."""
        return str(self._described().topic_id or self._connector.topic)

    def state(self) -> TopicState:
        described = self._described()
        partitions = [partition.id for partition in described.partitions]
        earliest = self._offsets(partitions, OffsetSpec.earliest(), committed=True)
        stable = self._offsets(partitions, OffsetSpec.latest(), committed=True)
        end = self._offsets(partitions, OffsetSpec.latest(), committed=False)
        offsets = {p: Offsets(earliest[p], stable[p], max(end[p], stable[p])) for p in partitions}
        return TopicState(str(described.topic_id or self._connector.topic), offsets)

    def _described(self) -> Any:
        topics = TopicCollection([self._connector.topic])
        ask = partial(self._admin.describe_topics, topics, request_timeout=self._timeout_s)
        return self._asked(ask)[self._connector.topic]

    def _offsets(self, partitions: list[int], spec: OffsetSpec, committed: bool) -> dict[int, int]:
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(self._connector.topic, number): spec for number in partitions}
        more = {"isolation_level": level, "request_timeout": self._timeout_s}
        found = self._asked(partial(self._admin.list_offsets, asked, **more))
        return {of.partition: info.offset for of, info in found.items()}

    def _asked(self, ask: Callable[[], dict[Any, Future[Any]]]) -> dict[Any, Any]:
        """The answers; while a partition changes its leader it is asked again, until the timeout."""
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
        """Yield all messages of the range that are committed, in order."""
        if wanted.first == wanted.until:
            return
        # One for each range: what another has fetched ahead can end none of these early.
        consumer = Consumer(self._settings | READING)
        try:
            consumer.assign([TopicPartition(wanted.name, wanted.partition, wanted.first)])
            yield from self._until(wanted.until, consumer)
        except KafkaException as error:
            raise self._unreadable(f"{wanted}: {error.args[0].str()}") from error
        finally:
            consumer.close()

    def _until(self, until: int, consumer: Any) -> Iterator[Message]:
        """Yield the messages before an offset.

        Marks of transactions and compacted offsets have none: the range ends with a message behind it,
        or with the partition.
        """
        while (first := consumer.poll(self._timeout_s)) is not None:
            for received in [first, *consumer.consume(MESSAGES_AT_ONCE, timeout=0)]:
                error = received.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if received.offset() >= until:
                    return
                if error is None:
                    yield _message(received)
        raise self._unreadable(f"no answer within {self._connector.timeout}")

    def _unreadable(self, why: str) -> ConnectorError:
        topic, servers = self._connector.topic, self._connector.servers
        said = f"topic {topic} of {servers} cannot be read: {why}{self._heard}"
        return ConnectorError.unreadable(topic, f"{said}. The next run goes on")


def _message(received: Any) -> Message:
    _, timestamp_ms = received.timestamp()
    place, key, value = (received.partition(), received.offset()), received.key(), received.value()
    at_ms = timestamp_ms if timestamp_ms >= 0 else None
    return Message(*place, key, value, headers=received.headers() or [], timestamp_ms=at_ms)


def client_settings(connector: KafkaTopic) -> dict[str, Any]:
    """Settings for librdkafka; raises SettingsError when a variable of the environment is missing."""
    protocol = ("SASL_" if connector.sasl else "") + ("SSL" if connector.tls else "PLAINTEXT")
    settings = {
        "bootstrap.servers": connector.servers,
        "security.protocol": protocol,
        "ssl.ca.location": connector.ca_file,
        "ssl.certificate.location": connector.certificate_file,
        "ssl.key.location": connector.key_file,
        "ssl.key.password": secret(connector, "key_password_env"),
        "sasl.mechanism": connector.sasl,
        "sasl.username": connector.username,
        "sasl.password": secret(connector, "password_env"),
    }
    return {key: value for key, value in settings.items() if value is not None}


# In a split: of a backlog, all cores and workers read some.
MESSAGES_A_RANGE = 50_000
# To tell whether a second process is worth its start.
BYTES_A_MESSAGE = 200


def next_offsets(done: Done) -> dict[int, int]:
    """The next offset of each partition of which a batch has a split."""
    ends: dict[int, tuple[int, int]] = {}
    for batch, split in done.splits:
        ends[split.partition] = max((batch, split.until), ends.get(split.partition, (0, 0)))
    return {partition: until for partition, (_, until) in ends.items()}


@dataclass(frozen=True)
class TopicConnector(SplitsConnector):
    """The connector of a topic."""

    source: Source
    connector: KafkaTopic

    @cached_property
    def state(self) -> TopicState:
        return open_topic(self.connector).state()

    def next_splits(self, done: Done) -> NextSplits:
        if loss := self.loss(done):
            raise ConnectorError.lost(self.source.name, loss.what)
        waiting = self._waiting(done)
        total = sum(until - first for first, until in waiting.values())
        # The same share of each: a partition that is far ahead would make the rows of others late.
        share = min(Fraction(self.connector.commit_messages, total or 1), Fraction(1))
        ranges = (
            self._split(partition, first, first + math.ceil((until - first) * share))
            for partition, (first, until) in waiting.items()
            # The first batch says where each partition was begun with.
            if until > first or not done.splits
        )
        return NextSplits(sorted(piece for each in ranges for piece in _pieces(each)))

    def _split(self, partition: int, first: int, until: int) -> Split:
        return Split(self.connector.topic, partition, first, until, self.state.id)

    def _waiting(self, done: Done) -> dict[int, tuple[int, int]]:
        nexts, found = next_offsets(done), {}
        for partition, offsets in self.state.partitions.items():
            first = nexts.get(partition, 0 if done.splits else offsets.earliest)
            found[partition] = (first, max(first, offsets.stable))
        return found

    def lag(self, done: Done) -> Lag:
        """The offsets that no batch has; at least 1 where a run has something to say."""
        partitions = self.state.partitions.values()
        if not done.splits or self.loss(done):
            count = 1 + sum(each.stable - each.earliest for each in partitions)
        else:
            count = sum(until - first for first, until in self._waiting(done).values())
        # What a transaction holds is not seen, and may be older.
        is_open = any(each.stable < each.end for each in partitions)
        held = f"a transaction is open in {self.connector.place}" if is_open else None
        return Lag(count, count <= self.connector.spark_messages, held)

    def loss(self, done: Done) -> Loss | None:
        if not done.splits:
            return None  # whatever expired before was never ours
        nexts, splits = next_offsets(done), list[Split]()
        is_same = done.origin_id == self.state.id  # another topic's offsets say nothing of these
        for partition in sorted(nexts.keys() | self.state.partitions.keys()):
            first = nexts.get(partition, 0)  # one that was added is read from its beginning
            earliest, _, end = self.state.partitions.get(partition, Offsets(0, 0, 0))
            until = min(max(first, earliest), end) if is_same else earliest
            if not is_same or until != first:
                splits.append(self._split(partition, first, until))
        if not splits:
            return None
        lost = sum(max(s.until - s.first, 0) for s in splits) if is_same else 0
        said = f"topic {self.connector.topic} has lost {counted(lost, 'offset')}, or was replaced"
        return Loss(said, lost, splits)

    def reader(self, batch: Batch) -> ReadSplit:
        return partial(outcomes_of_range, self.source, batch)


def _pieces(whole: Split) -> Iterator[Split]:
    for first in range(whole.first, max(whole.until, whole.first + 1), MESSAGES_A_RANGE):
        until = min(first + MESSAGES_A_RANGE, whole.until)
        size = (until - first) * BYTES_A_MESSAGE
        yield whole._replace(first=first, until=until, bytes=size)


# Confluent's wire format: a zero, the schema's id, highest byte first, and the record.
ID_ENDS = 5


# The fields of a message's value; raises RefusedError when it has none.
ReadValue = Callable[[bytes], Row]


def values_of(source: Source) -> ReadValue:
    """A reader of messages' values; raises SettingsError when the declared schema is no Avro schema."""
    connector = source.connector
    assert isinstance(connector, KafkaTopic)
    if connector.schema is not None:
        try:
            return partial(_avro_row, read_schema(connector.schema), begins=0)
        except RefusedError as error:
            said = f"Kafka topic {connector.topic}: schema: {error.reason}"
            raise SettingsError(said, subject="schema") from None
    if connector.schema_registry is not None:
        return _by_registry(connector.schema_registry)
    return _json_values(source)


def _json_values(source: Source) -> ReadValue:
    rows = JsonRows("", source)

    def row(value: bytes) -> Row:
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            raise RefusedError("not_utf8", f"{error.reason} at byte {error.start}") from None
        return rows.values(text)

    return row


def _avro_row(schema: Schema, value: bytes, begins: int) -> Row:
    data = io.BytesIO(value)
    data.seek(begins)
    try:
        row = read_record(data, schema)
    except BROKEN as error:
        raise RefusedError("not_avro", f"no record of its schema: {broken(error)}") from None
    if rest := len(value) - data.tell():
        raise RefusedError("not_avro", f"{rest} bytes behind the record of its schema")
    return row


def _by_registry(registry: SchemaRegistry) -> ReadValue:
    @cache  # what the registry does not know is asked for once
    def known(schema_id: int) -> Schema | RefusedError:
        try:
            return schema_of(registry, schema_id)
        except RefusedError as refusal:
            return refusal

    def row(value: bytes) -> Row:
        if len(value) < ID_ENDS or value[0] != 0:
            begins = value[:ID_ENDS].hex() or "nothing"
            raise RefusedError("not_avro", f"it has no schema's id, but begins with {begins}")
        schema = known(int.from_bytes(value[1:ID_ENDS]))
        if isinstance(schema, RefusedError):
            raise RefusedError(schema.code, schema.reason)
        return _avro_row(schema, value, ID_ENDS)

    return row


def _raw(read: ReadValue, is_json: bool, value: bytes | None) -> str | None:
    """A message's value for people to read, and to correct as JSON."""
    if value is None:
        return None
    if not is_json:
        with suppress(RefusedError):
            return json_text(read(value))
    return value.decode(errors="backslashreplace")


def outcomes_of_range(source: Source, batch: Batch, split: Split) -> Iterator[Outcome]:
    """Yield an outcome for each message of a range, and last the range's; ConnectorError for a loss."""
    connector = source.connector
    assert isinstance(connector, KafkaTopic)
    topic, ids = open_topic(connector), f"{split.origin_id}/{batch.number}/{split.source_file}"

    def outcomes(rescue: Rescue) -> Iterator[Outcome | None]:
        judge = judge_of(source, rescue)
        for message in topic.read(split):
            if message.value is None and connector.tombstones == "skip":
                yield None
                continue
            outcome = judge(message, batch.ingested_at_us)
            if outcome["kind"] == REFUSED:
                outcome["quarantine_id"] = quarantine_id(ids, outcome["row_number"])
            yield outcome
        if topic.id() != split.origin_id:
            said = f"topic {connector.topic} was replaced since {split} was planned"
            raise ConnectorError.lost(source.name, said)

    yield from with_counts(source, split.source_file, outcomes)


def judge_of(
    source: Source, rescue: Rescue, is_corrected: bool = False
) -> Callable[[Message, int], Outcome]:
    """A function of a message and its time of ingestion that gives its outcome; corrected, it is JSON."""
    assert isinstance(source.connector, KafkaTopic)
    topic, is_json = source.connector.topic, is_corrected or source.connector.format == "json"
    read = _json_values(source) if is_json else values_of(source)
    with_message = _with_message(source)

    def values(message: Message) -> Row:
        if message.value is None:
            raise RefusedError("tombstone", "the message has no value: it deletes its key")
        return with_message(read(message.value), message)

    judge_row = judge_of_rows(source, rescue, values, lambda of: _raw(read, is_json, of.value))

    def judge(message: Message, ingested_at_us: int) -> Outcome:
        name, number = f"{topic}/{message.partition}", message.offset + 1  # from 1, as in a file
        outcome = judge_row(name, number, message, ingested_at_us)
        if outcome["kind"] == REFUSED:
            outcome["kafka_message"] = as_json(message)
        outcome |= {"kafka_partition": message.partition, "kafka_offset": message.offset}
        outcome["source_file"] = name
        return outcome

    return judge


def _with_message(source: Source) -> Callable[[Row, Message], Row]:
    """A function that adds key, headers and the like to a value, where a field asks for them."""
    assert isinstance(source.connector, KafkaTopic)
    topic, fields = source.connector.topic, {field.landed: field.type for field in source.fields}
    is_asked = any(path.startswith(f"{MESSAGE}.") for path in (source.time_field, *fields))
    kind = fields.get(f"{MESSAGE}.key", "string")
    of_text = Text if is_read_of_text(kind) else str

    def with_message(values: Row, message: Message) -> Row:
        # No member of a value stands for what only the message has.
        own = {f"value.{n}" if n.split(".")[0] == MESSAGE else n: v for n, v in values.items()}
        if not is_asked:
            return own
        key = message.key if kind == "binary" else _text(message.key)
        at_ms = message.timestamp_ms
        member = {
            "key": of_text(key) if isinstance(key, str) else key,
            "headers": {name: _text(value) for name, value in message.headers},
            "topic": topic,
            "partition": message.partition,
            "offset": message.offset,
            "timestamp": None if at_ms is None else Instant(at_ms * 1000),
        }
        return own | {MESSAGE: member}

    return with_message


def _text(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


# Messages in quarantine
def as_json(message: Message) -> str:
    """All of a message that quarantine has no column for, as JSON."""
    known = {
        "key": _stored(message.key),
        "headers": [[name, _stored(of)] for name, of in message.headers],
        "timestamp_ms": message.timestamp_ms,
        "value": _stored(message.value),
    }
    return json.dumps(known)


def judged_again(
    source: Source, row: Mapping[str, Any], corrected: str | None, at_us: int
) -> Outcome:
    judge = judge_of(source, Rescue(source), is_corrected=corrected is not None)
    return judge(message_of(row, corrected), at_us)


def message_of(row: Mapping[str, Any], corrected: str | None) -> Message:
    """The message of a row of quarantine, with its corrected value if there is one."""
    known = json.loads(row["kafka_message"])
    value = _restored(known["value"]) if corrected is None else corrected.encode()
    place, key = (row["kafka_partition"], row["kafka_offset"]), _restored(known["key"])
    headers = [(name, _restored(of)) for name, of in known["headers"]]
    return Message(*place, key, value, headers=headers, timestamp_ms=known["timestamp_ms"])


def _stored(value: bytes | None) -> object:
    text = _text(value)
    return {"base64": base64.b64encode(text).decode()} if isinstance(text, bytes) else text


def _restored(stored: Any) -> bytes | None:
    if stored is None:
        return None
    return stored.encode() if isinstance(stored, str) else base64.b64decode(stored["base64"])
