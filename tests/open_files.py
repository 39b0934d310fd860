"""A process that may open no file any more, for tests; what it has open stays so."""

import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError


@contextmanager
def no_more_files() -> Iterator[None]:
    # At the first read of a process delta-rs opens what it waits with, and panics if it cannot.
    with tempfile.TemporaryDirectory() as empty, suppress(TableNotFoundError):
        DeltaTable(empty)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
