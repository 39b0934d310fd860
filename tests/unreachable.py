"""What cannot be had just now, for tests: memory, an object store. See `open_files.py`."""

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

MEMORY_LEFT = 64 << 20


@contextmanager
def no_more_memory() -> Iterator[None]:
    """Of Arrow's, which asks the system for each piece while it lasts: all but MEMORY_LEFT is taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pool = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + MEMORY_LEFT, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        pa.set_memory_pool(pool)


@contextmanager
def store_that_answers(status: int) -> Iterator[None]:
    """An object store, of the environment, that gives nothing but that status."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD = do_PUT = answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }.items():
            patch.setenv(name, value)
        yield
    server.shutdown()
    server.server_close()
