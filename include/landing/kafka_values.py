"""A message's value as a row: one JSON object, or one Avro record."""

import io
from collections.abc import Callable, Mapping
from typing import Protocol

from include.landing.avro_schema import (
    BROKEN,
    AvroSchema,
    AvroSchemaError,
    broken,
    read_record,
    read_schema,
)
from include.landing.landed_json import JsonRows, RawRows
from include.landing.refusals import RefusedError
from include.landing.row_as_json import raw_writer
from include.landing.schema_registry import schema_of
from include.landing.typed_texts import text_typer
from include.origins import KafkaTopic, SchemaRegistry
from include.settings import SettingsError, Source

# Confluent's wire format: a zero, the schema's id, highest byte first, and the record.
ID_ENDS = 5


class Values(Protocol):
    """What a topic's values are."""

    def values(self, value: bytes) -> Mapping[str, object]:
        """By field; RefusedError when it is none."""

    def raw(self, value: bytes) -> str:
        """For people to read, and to correct as JSON."""


def values_of(source: Source) -> Values:
    """What reads those of the source's topic. SettingsError when its schema is none."""
    origin = source.origin
    assert isinstance(origin, KafkaTopic)
    if origin.schema_registry is not None:
        return AvroValues(_SchemaById(origin.schema_registry), source)
    if origin.schema is not None:
        return AvroValues(_one_schema(origin.topic, origin.schema), source)
    return JsonValues(source)


class JsonValues:
    """`Values` of JSON in UTF-8."""

    def __init__(self, source: Source) -> None:
        self._rows = JsonRows("", source)

    def values(self, value: bytes) -> Mapping[str, object]:
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            raise RefusedError("not_utf8", f"{error.reason} at byte {error.start}") from None
        return self._rows.values(text)

    def raw(self, value: bytes) -> str:
        return _as_text(value)


class CorrectedValues(JsonValues):
    """Of records, each corrected as JSON: what their `raw` marks is what it was."""

    def __init__(self, source: Source) -> None:
        self._rows = RawRows("", source)


# Of a value: its schema, and where its record begins.
SchemaOf = Callable[[bytes], tuple[AvroSchema, int]]


class AvroValues:
    """`Values` of one Avro record each."""

    def __init__(self, schema_of: SchemaOf, source: Source) -> None:
        self._schema_of, self._raw = schema_of, raw_writer(source)
        self._typed = text_typer(source)

    def values(self, value: bytes) -> Mapping[str, object]:
        schema, begins = self._schema_of(value)
        data = io.BytesIO(value)
        data.seek(begins)
        try:
            row = read_record(data, schema)
        except BROKEN as error:
            raise RefusedError("not_avro", f"no record of its schema: {broken(error)}") from None
        if rest := len(value) - data.tell():
            raise RefusedError("not_avro", f"{rest} bytes behind the record of its schema")
        return self._typed(row)

    def raw(self, value: bytes) -> str:
        try:
            return self._raw(self.values(value))
        except RefusedError:
            return _as_text(value)


def _as_text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


class _SchemaById:
    """Of one range: what the registry does not know is asked for once."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._refused: dict[int, RefusedError] = {}

    def __call__(self, value: bytes) -> tuple[AvroSchema, int]:
        if len(value) < ID_ENDS or value[0] != 0:
            begins = value[:ID_ENDS].hex() or "nothing"
            raise RefusedError("not_avro", f"it has no schema's id, but begins with {begins}")
        schema_id = int.from_bytes(value[1:ID_ENDS])
        if known := self._refused.get(schema_id):
            raise RefusedError(known.code, known.reason)
        try:
            return schema_of(self._registry, schema_id), ID_ENDS
        except RefusedError as refusal:
            self._refused[schema_id] = refusal
            raise


def _one_schema(topic: str, text: str) -> SchemaOf:
    try:
        schema = read_schema(text)
    except AvroSchemaError as error:
        raise SettingsError(f"Kafka topic {topic}: schema: {error}", subject="schema") from None
    return lambda value: (schema, 0)
