"""Schemas of Avro values, by their ids, as Confluent's registry and those like it serve them.

Plain HTTP of the standard library: `confluent_kafka.schema_registry` would bring httpx2, authlib,
cachetools, attrs and certifi for two GETs.
"""

import json
import ssl
from base64 import b64encode
from collections.abc import Iterator
from functools import lru_cache
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPSHandler, OpenerDirector, Request, build_opener

from include.landing.arrivals import OriginError
from include.landing.avro_schema import AvroSchema, AvroSchemaError, read_schema
from include.landing.refusals import RefusedError
from include.origins import SchemaRegistry, secret

# What a registry answers with of an id that it has not, beside 404: any other server has that, too.
NO_SUCH_SCHEMA = 40403


@lru_cache(maxsize=1_000)
def schema_of(registry: SchemaRegistry, schema_id: int) -> AvroSchema:
    """The schema of that id, asked for once in a process, as it never changes.

    RefusedError when the registry knows none, or none that rows can be read by; OriginError when
    it does not answer.
    """
    answer = _asked(registry, f"schemas/ids/{schema_id}")
    if answer is None:
        raise RefusedError("unknown_schema", f"{registry.name} has no schema {schema_id}")
    kind = answer.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise RefusedError("unreadable_schema", f"schema {schema_id} is of {kind}, not of Avro")
    try:
        return read_schema(answer["schema"], *_named(registry, answer))
    except AvroSchemaError as error:
        raise RefusedError("unreadable_schema", f"schema {schema_id}: {error}") from None


def _named(registry: SchemaRegistry, answer: dict[str, Any]) -> Iterator[str]:
    """The schemas that it refers to, each behind those to which it refers itself."""
    for each in answer.get("references") or ():
        path = f"subjects/{quote(each['subject'], safe='')}/versions/{each['version']}"
        if (found := _asked(registry, path)) is None:
            raise _unreadable(registry, f"it has no {path}, to which a schema refers")
        yield from _named(registry, found)
        yield found["schema"]


def _asked(registry: SchemaRegistry, path: str) -> dict[str, Any] | None:
    """The answer to a GET; None of one that says that there is no such schema."""
    url = f"{registry.url.rstrip('/')}/{path}"
    request = Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json"})  # noqa: S310 (checked where it is declared)
    if (password := secret(registry.name, registry, "password_env")) is not None:
        user = b64encode(f"{registry.username}:{password}".encode()).decode()
        # Not to wherever the answer may redirect to.
        request.add_unredirected_header("Authorization", f"Basic {user}")
    try:
        timeout_s = registry.timeout.total_seconds()
        with _opener(registry).open(request, timeout=timeout_s) as response:
            return _object(response.read())
    except HTTPError as error:
        if error.code == 404 and _error_code(error.read()) == NO_SUCH_SCHEMA:
            return None
        raise _unreadable(registry, f"{path}: {error}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise _unreadable(registry, f"{path}: {error}") from None


def _object(body: bytes) -> dict[str, Any]:
    found = json.loads(body)
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        raise ValueError("the answer is no schema")
    return found


def _error_code(body: bytes) -> object:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found.get("error_code") if isinstance(found, dict) else None


def _opener(registry: SchemaRegistry) -> OpenerDirector:
    if not registry.url.startswith("https"):
        return build_opener()
    context = ssl.create_default_context(cafile=registry.ca_file)
    if registry.certificate_file is not None:
        password = secret(registry.name, registry, "key_password_env")
        context.load_cert_chain(registry.certificate_file, registry.key_file, password)
    return build_opener(HTTPSHandler(context=context))


def _unreadable(registry: SchemaRegistry, why: str) -> OriginError:
    return OriginError(
        f"{registry.name} cannot be read: {why}. Nothing is lost: the batch that was begun is "
        "repeated by the next run. See that it is up, and `schema_registry` of the source's topic",
        code="unreadable_input",
        subject=registry.url,
    )
