"""A registry of schemas for tests, over HTTP as Confluent's: what is asked, and what it answers."""

import json
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any

import fastavro


class FakeRegistry:
    """Its schemas by id; subjects are versions of these, as `SUBJECT/VERSION`."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.schemas: dict[int, dict[str, Any]] = {}
        self.versions: dict[str, int] = {}
        self.asked: list[str] = []
        self.user: str | None = None  # "name:password", if it wants any
        self.answers: tuple[int, bytes] | None = None  # to all, whatever is asked

    def add(self, schema: Any, **more: Any) -> int:
        """The id that it gets."""
        schema_id = 70_000 + len(self.schemas)
        self.schemas[schema_id] = {"schema": json.dumps(schema), **more}
        return schema_id

    def wire(self, schema_id: int, record: Any, named: dict[str, Any] | None = None) -> bytes:
        """The record as Confluent's serializer writes it: a zero, the id, the body."""
        return b"\0" + schema_id.to_bytes(4, "big") + self.body(schema_id, record, named)

    def body(self, schema_id: int, record: Any, named: dict[str, Any] | None = None) -> bytes:
        schema = json.loads(self.schemas[schema_id]["schema"])
        sink = BytesIO()
        fastavro.schemaless_writer(sink, fastavro.parse_schema(schema, named or {}), record)
        return sink.getvalue()

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        self.asked.append(path)
        if self.answers is not None:
            return self.answers
        if self.user is not None and authorization != _basic(self.user):
            return 401, b'{"error_code": 401, "message": "Unauthorized"}'
        match path.strip("/").split("/"):
            case ["schemas", "ids", number]:
                found = self.schemas.get(int(number))
            case ["subjects", subject, "versions", version]:
                found = self.schemas.get(self.versions.get(f"{subject}/{version}", 0))
            case _:
                return 404, b"<html>no such page</html>"
        if found is None:
            return 404, b'{"error_code": 40403, "message": "Schema not found"}'
        return 200, json.dumps(found).encode()


def _basic(user: str) -> str:
    return f"Basic {b64encode(user.encode()).decode()}"


@contextmanager
def running_registry(keys: Path | None = None) -> Iterator[FakeRegistry]:
    """One that answers until the end of the block; by TLS with `keys`, a certificate and its key."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path, self.headers["Authorization"])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry = FakeRegistry(server.server_port)
    if keys is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keys)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        registry.url = registry.url.replace("http:", "https:")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
