"""Messages of a range of offsets: their values as rows, and one outcome for each."""

import base64
import io
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, lru_cache, partial
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

from include.ingest.connector import Batch, OriginError, Outcome, Split, lost_input
from include.ingest.landed_avro import (
    BROKEN,
    AvroSchema,
    AvroSchemaError,
    broken,
    read_record,
    read_schema,
    schema_of,
)
from include.ingest.landed_json import JsonRows
from include.ingest.landed_values import (
    Instant,
    RefusedError,
    Text,
    is_read_of_text,
    reader_of_events,
)
from include.ingest.parse_files import (
    accepted,
    quarantine_id,
    refused,
    value_columns,
    with_counts,
)
from include.ingest.rescue import Rescue, json_text
from include.lake.errors import SettingsError
from include.origins import MESSAGE, KafkaTopic, SchemaRegistry, secret
from include.settings import Source

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
            f"topic {self._origin.topic} of {self._origin.servers} cannot be read: {why}{self._heard}. "
            "The next run goes on, or says what is lost",
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


# Confluent's wire format: a zero, the schema's id, highest byte first, and the record.
ID_ENDS = 5


Row = Mapping[str, object]
# Of a message's value, by field; RefusedError when it is none.
ReadValue = Callable[[bytes], Row]


def values_of(source: Source) -> ReadValue:
    """What reads values of one range of the source's topic. SettingsError when its schema is none."""
    origin = source.origin
    assert isinstance(origin, KafkaTopic)
    if origin.schema is not None:
        return partial(_avro_row, _declared_schema(origin.topic, origin.schema), begins=0)
    if origin.schema_registry is not None:
        return _by_registry(origin.schema_registry)
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


def _avro_row(schema: AvroSchema, value: bytes, begins: int) -> Row:
    data = io.BytesIO(value)
    data.seek(begins)
    try:
        row = read_record(data, schema)
    except BROKEN as error:
        raise RefusedError("not_avro", f"no record of its schema: {broken(error)}") from None
    if rest := len(value) - data.tell():
        raise RefusedError("not_avro", f"{rest} bytes behind the record of its schema")
    return row


def _declared_schema(topic: str, text: str) -> AvroSchema:
    try:
        return read_schema(text)
    except AvroSchemaError as error:
        raise SettingsError(f"Kafka topic {topic}: schema: {error}", subject="schema") from None


def _by_registry(registry: SchemaRegistry) -> ReadValue:
    @cache  # what the registry does not know is asked for once
    def known(schema_id: int) -> AvroSchema | RefusedError:
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


Judge = Callable[[Message, int], Outcome]


def outcomes_of_range(source: Source, batch: Batch, split: Split) -> Iterator[Outcome]:
    """Every message of one range, accepted or refused, and last the range with their number.

    OriginError when messages are not all to be had, or belong to another topic than was planned.
    """
    rescue = Rescue(source)
    yield from with_counts(
        source, split.source_file, _outcomes(source, batch, split, rescue), rescue
    )


def _outcomes(
    source: Source, batch: Batch, split: Split, rescue: Rescue
) -> Iterator[Outcome | None]:
    origin = source.origin
    assert isinstance(origin, KafkaTopic)
    topic, judge = open_topic(origin), judge_of(source, rescue)
    ids = f"{split.origin_id}/{batch.number}/{origin.topic}"
    for message in topic.read(split):
        if message.value is None and origin.tombstones == "skip":
            yield None
            continue
        outcome = judge(message, batch.ingested_at_us)
        if "quarantine_id" in outcome:
            outcome["quarantine_id"] = quarantine_id(
                f"{ids}/{message.partition}", outcome["row_number"]
            )
        yield outcome
    if topic.id() != split.origin_id:
        said = f"topic {origin.topic} was made anew since {split} was planned"
        raise lost_input(source.name, said)


def judge_of(source: Source, rescue: Rescue, is_corrected: bool = False) -> Judge:
    """What makes an outcome of a message and when it was taken in; types are looked up once.

    A value that was corrected is JSON, whatever the topic has.
    """
    assert isinstance(source.origin, KafkaTopic)
    topic, is_json = source.origin.topic, is_corrected or source.origin.format == "json"
    read = _json_values(source) if is_json else values_of(source)
    to_event = reader_of_events(source)
    with_message, columns = _with_message(source), value_columns(source)

    def judge(message: Message, ingested_at_us: int) -> Outcome:
        number = message.offset + 1  # from 1, as in a file
        name = f"{topic}/{message.partition}"
        try:
            if message.value is None:
                raise RefusedError("tombstone", "the message has no value: it deletes its key")
            values = with_message(read(message.value), message)
            event = to_event(values, ingested_at_us)
            landed = {name: value for name, value in values.items() if name != MESSAGE}
            outcome = accepted(columns, number, event, rescue.text(landed))
        except RefusedError as refusal:
            raw = _raw(read, is_json, message.value)
            outcome = refused(name, number, refusal, raw)
            outcome["kafka_message"] = as_json(message, raw)
        outcome["source_file"] = name
        outcome["kafka_partition"] = message.partition
        outcome["kafka_offset"] = message.offset
        return outcome

    return judge


def _with_message(source: Source) -> Callable[[Row, Message], Row]:
    """What adds to a value what its message has beside it, where a field asks for that."""
    assert isinstance(source.origin, KafkaTopic)
    topic, fields = source.origin.topic, {field.landed: field.type for field in source.fields}
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


# To quarantine and back
def as_json(message: Message, raw: str | None) -> str:
    """All of a message that quarantine, which has `raw`, has no column for."""
    value = message.value
    is_text = value is None or value == (raw or "").encode()
    return json.dumps(
        {
            "key": _stored(message.key),
            "headers": [[name, _stored(of)] for name, of in message.headers],
            "timestamp_ms": message.timestamp_ms,
            # Only where `raw` has not all of it.
            **({} if is_text else {"value": _stored(value)}),
        }
    )


def judged_again(
    source: Source, row: Mapping[str, Any], corrected: str | None, at_us: int
) -> Outcome:
    """What becomes of a row of quarantine now."""
    judge = judge_of(source, Rescue(source), is_corrected=corrected is not None)
    return judge(message_of(row, corrected), at_us)


def message_of(row: Mapping[str, Any], corrected: str | None) -> Message:
    """The message of a row of quarantine, with another value if that was corrected."""
    known = json.loads(row["kafka_message"])
    text = row["raw"] if corrected is None else corrected
    value = None if text is None else text.encode()
    if corrected is None and "value" in known:
        value = _restored(known["value"])
    headers: Headers = [(name, _restored(of)) for name, of in known["headers"]]
    return Message(
        row["kafka_partition"],
        row["kafka_offset"],
        _restored(known["key"]),
        value=value,
        headers=headers,
        timestamp_ms=known["timestamp_ms"],
    )


def _stored(value: bytes | None) -> object:
    text = _text(value)
    return {"base64": base64.b64encode(text).decode()} if isinstance(text, bytes) else text


def _restored(stored: Any) -> bytes | None:
    if stored is None:
        return None
    return stored.encode() if isinstance(stored, str) else base64.b64decode(stored["base64"])
