"""Avro, by fastavro: the rows of an object container file, writers' schemas, and the registry that has them."""

import io
import json
import ssl
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote
from uuid import UUID

from fastavro import block_reader, parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException, UnknownType

from include.connectors import SchemaRegistry, secret
from include.ingest.landed_values import (
    RefusedError,
    TypedRows,
    UnreadableFileError,
    columns_to_read,
)
from include.ingest.splits import ConnectorError
from include.settings import Source

MAX_DEPTH = 128  # twice that of records within records
# What fastavro raises for broken bytes.
BROKEN = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, RecursionError, TypeError),
    *(SchemaParseException, UnknownType, ValueError),
)


Schema = dict[str, Any]  # of a record, as fastavro has parsed it


def read_schema(text: str, *named: str) -> Schema:
    """The schema of a JSON text and types of others it names; RefusedError when it is none of records."""
    try:
        types: dict[str, Any] = {}
        for each in named:
            parse_schema(json.loads(each), types)
        written = json.loads(text)
        if not isinstance(written, dict) or written.get("type") != "record":
            raise _unreadable_schema("Avro whose items are no records")
        parsed: Any = parse_schema(written, types)
        _check(parsed["name"], dict(types))
    except BROKEN as error:
        raise _unreadable_schema(f"no Avro schema: {broken(error)}") from None
    return dict(parsed)


_unreadable_schema = partial(RefusedError, "unreadable_schema")


def read_record(data: io.BytesIO, schema: Schema) -> dict[str, object]:
    return _plain(schemaless_reader(data, schema, None))


def _plain(row: Any) -> dict[str, object]:
    return {n: str(value) if isinstance(value, UUID) else value for n, value in row.items()}


def broken(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".rstrip()


def _check(part: Any, types: dict[str, Any], depth: int = 0) -> None:
    """Raise RefusedError for a schema that holds itself, or is nested too deeply for a stack."""
    if depth > MAX_DEPTH:
        raise _unreadable_schema("an Avro schema that holds itself, or is nested too deeply")
    if isinstance(part, str) and part in types:
        _check(types[part], types, depth + 1)
        types.pop(part)  # it is right, wherever it is named
    elif isinstance(part, list):
        for each in part:
            _check(each, types, depth)
    elif isinstance(part, dict):
        for name in {"type", "items", "values", "fields"} & part.keys():
            _check(part[name], types, depth + 1)


class AvroRows(TypedRows):
    """The rows of an Avro object container file."""

    def __init__(self, content: bytes, source: Source) -> None:
        if not content.startswith(b"Obj\x01"):
            raise UnreadableFileError("not an Avro file")
        try:
            blocks = block_reader(io.BytesIO(content))
            schema = read_schema(blocks.metadata["avro.schema"])
            columns_to_read([field["name"] for field in schema["fields"]], source, "Avro")
            self._blocks = list(_bounded(blocks, source.max_file_bytes))
            for _ in self.items():  # finds a record that is broken
                pass
        except RefusedError as error:
            raise UnreadableFileError(error.reason) from None
        except (MemoryError, UnreadableFileError):
            raise
        except Exception as error:  # each codec has errors of its own
            raise UnreadableFileError(f"not a whole Avro file: {broken(error)}") from error

    def items(self) -> Iterator[dict[str, object]]:
        for block in self._blocks:
            block.bytes_.seek(0)
            yield from map(_plain, block)
            if block.bytes_.read(1):
                raise ValueError("a block has more bytes than its records")


def _bounded(blocks: Iterable[Any], most: int) -> Iterator[Any]:
    """Yield the unpacked blocks of a file, of so many bytes at most together."""
    left = most
    for block in blocks:
        size = len(block.bytes_.getbuffer())
        if (left := left - size) < 0:
            raise UnreadableFileError(f"unpacks to more than {most} bytes: split it")
        if not 0 <= block.num_records <= size:
            raise ValueError(f"a block of {size} bytes with {block.num_records} records")
        yield block


# A registry's answer for an unknown id; with 404 alone, which any other server gives, it is none.
NO_SUCH_SCHEMA = 40403


@lru_cache(maxsize=1_000)
def schema_of(registry: SchemaRegistry, schema_id: int) -> Schema:
    """The schema of an id, asked for once in a process; RefusedError where the registry has none of Avro."""
    answer = _asked(registry, f"schemas/ids/{schema_id}")
    if answer is None:
        raise RefusedError("unknown_schema", f"{registry.place} has no schema {schema_id}")
    kind = answer.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise _unreadable_schema(f"schema {schema_id} is of {kind}, not of Avro")
    try:
        return read_schema(answer["schema"], *_named(registry, answer))
    except RefusedError as error:
        raise _unreadable_schema(f"schema {schema_id}: {error.reason}") from None


def _named(registry: SchemaRegistry, answer: dict[str, Any]) -> Iterator[str]:
    """Yield the schemas that `answer` refers to, each behind those to which it refers itself."""
    for each in answer.get("references") or ():
        path = f"subjects/{quote(each['subject'], safe='')}/versions/{each['version']}"
        if (found := _asked(registry, path)) is None:
            raise _unreadable(registry, f"it has no {path}, to which a schema refers")
        yield from _named(registry, found)
        yield found["schema"]


def _asked(registry: SchemaRegistry, path: str) -> dict[str, Any] | None:
    """The answer to a GET; None when the registry says that there is no such schema."""
    import httpx  # which no other source needs

    password = secret(registry, "password_env")
    tls = ssl.create_default_context(cafile=registry.ca_file)
    if registry.certificate_file is not None:
        key_password = secret(registry, "key_password_env")
        tls.load_cert_chain(registry.certificate_file, registry.key_file, key_password)
    try:
        answer = httpx.get(
            f"{registry.url.rstrip('/')}/{path}",
            headers={"Accept": "application/vnd.schemaregistry.v1+json"},
            auth=None if password is None else (str(registry.username), password),
            follow_redirects=True,  # the password stays here
            verify=tls,
            timeout=registry.timeout.total_seconds(),
        )
        found = answer.json()
    except (OSError, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise _unreadable(registry, f"{path}: {broken(error)}") from None
    body = found if isinstance(found, dict) else {}
    if answer.status_code == 404 and body.get("error_code") == NO_SUCH_SCHEMA:
        return None
    if not answer.is_success or not isinstance(body.get("schema"), str):
        raise _unreadable(registry, f"{path}: HTTP {answer.status_code}, and no schema")
    return body


def _unreadable(registry: SchemaRegistry, why: str) -> ConnectorError:
    said = f"{registry.place} cannot be read: {why}. The next run goes on"
    return ConnectorError.unreadable(registry.url, said)
