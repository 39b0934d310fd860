"""Avro's schemas as whoever wrote them gives them, and one record by such a schema.

Schemas come from files and registries: one that makes much of few bytes is refused before any byte
is read by it.
"""

import io
import json
import lzma
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException, UnknownType

MAX_DEPTH = 64
# With all named types written out: ten named types of ten fields each of the next name billions.
MAX_PARTS = 100_000
# What broken bytes are raised as, by fastavro and by who unpacks them.
BROKEN = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RecursionError,
    SchemaParseException,
    TypeError,
    UnknownType,
    ValueError,
    lzma.LZMAError,
    zlib.error,
)


class AvroSchemaError(Exception):
    """No rows can be read by the schema; the message says why."""


class AvroSchema(NamedTuple):
    """A record's schema, as fastavro has it."""

    parsed: Any
    columns: list[str]


def read_schema(text: str, *named: str) -> AvroSchema:
    """The schema of that JSON, in which the types of `named`, schemas too, may be named.

    AvroSchemaError when it is none, or none of records, or one that no table could have.
    """
    try:
        types: dict[str, Any] = {}
        for each in named:
            parse_schema(json.loads(each), types)
        written = json.loads(text)
        if not isinstance(written, dict) or written.get("type") != "record":
            raise AvroSchemaError("Avro whose items are no records")
        parsed: Any = parse_schema(written, types)
        _check(parsed, types)
    except BROKEN as error:
        raise AvroSchemaError(f"no Avro schema: {broken(error)}") from None
    return AvroSchema(parsed, [field["name"] for field in parsed["fields"]])


def read_record(data: io.BytesIO, schema: AvroSchema) -> dict[str, object]:
    """The next record; it raises BROKEN where there is none."""
    row: Any = schemaless_reader(data, schema.parsed, None)
    return {name: _value(value) for name, value in row.items()}


def _value(value: object) -> object:
    return str(value) if isinstance(value, UUID) else value


def broken(error: BaseException) -> str:
    """What was raised, for people."""
    return f"{type(error).__name__} {error}".rstrip()


class _Part(NamedTuple):
    """Of a part of a schema, with all types that it names written out."""

    depth: int
    parts: int
    has_bytes: bool  # each value of it has at least one


SCALAR, NULL = _Part(1, 1, True), _Part(1, 1, False)


def _check(schema: Any, types: dict[str, Any]) -> None:
    """AvroSchemaError for a schema that holds itself, or has items without a byte: no table has such
    columns, and of a few bytes they make more than any memory or stack holds."""
    within: set[str] = set()

    @cache
    def of_type(name: str) -> _Part:
        if name not in types:
            return NULL if name == "null" else SCALAR
        if name in within:
            raise AvroSchemaError(f"an Avro schema in which {name} holds itself")
        within.add(name)
        found = _measured(types[name], of_part)
        within.remove(name)
        return found

    def of_part(part: Any) -> _Part:
        return of_type(part) if isinstance(part, str) else _measured(part, of_part)

    try:
        whole = of_type(schema["name"])
    except RecursionError:
        raise AvroSchemaError("an Avro schema nested too deeply") from None
    if whole.depth > MAX_DEPTH:
        raise AvroSchemaError("an Avro schema nested too deeply")
    if whole.parts > MAX_PARTS:
        raise AvroSchemaError(f"an Avro schema of {whole.parts} parts")


def _measured(schema: Any, of_part: Callable[[Any], _Part]) -> _Part:
    if isinstance(schema, list):
        return _together([of_part(choice) for choice in schema], has_bytes=True)
    kind = schema["type"]
    if kind in ("record", "error"):
        fields = [of_part(field["type"]) for field in schema["fields"]]
        return _together(fields, any(field.has_bytes for field in fields))
    if kind in ("array", "map"):
        items = of_part(schema["items" if kind == "array" else "values"])
        if kind == "array" and not items.has_bytes:
            raise AvroSchemaError("an Avro array whose items have no bytes")
        return _together([items], has_bytes=True)
    if kind == "fixed":
        return SCALAR._replace(has_bytes=schema["size"] > 0)
    return SCALAR if kind == "enum" else of_part(kind)


def _together(parts: list[_Part], has_bytes: bool) -> _Part:
    depth = max((part.depth for part in parts), default=0)
    return _Part(depth + 1, 1 + sum(part.parts for part in parts), has_bytes)
