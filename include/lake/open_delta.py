"""Delta tables as delta-rs opens them, but with nothing of their log left out."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

COMMIT = re.compile(r"(\d{20})\.json")
# Each library of Rust's has one of its own, and gives it to nobody to import.
PANIC = "PanicException"


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """DeltaError in place of a panic of delta-rs, as of damage that it did not think of.

    That is no `Exception`: nobody would tell of it, or clean up after it.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != PANIC:
            raise
        raise DeltaError(f"delta-rs has panicked: {error}") from error


def delta_table(path: str, version: int | None = None) -> DeltaTable:
    """The table at `path`, as of a version or its newest; OSError when that cannot be had just now.

    delta-rs (1.6.6) leaves a file out of the log where the disk does not tell what it is (`stat`
    fails). Without others it takes the log for damaged. Without its newest commits a table is an
    older one, and nothing says so: who opened that would judge, or delete, by it. So it is held
    against the names in the log, which are listed before: what somebody commits meanwhile is not
    missed. A store lists names and what they are in one answer, and is asked nothing more.
    """
    newest = _newest_commit(path) if version is None else -1
    try:
        with panics_as_errors():
            table = DeltaTable(path, version=version)
    except DeltaError:
        refuse_left_out(path)
        raise
    if table.version() < newest:
        refuse_left_out(path)
        left_out = f"{_log_of(path)}/{newest:020}.json"  # the disk tells of it by now
        raise OSError(errno.EIO, os.strerror(errno.EIO), left_out)
    return table


def refuse_left_out(path: str) -> None:
    """OSError of what the disk does not tell of in the log of the table at `path`.

    For whoever holds an error of delta-rs, which says nothing of it.
    """
    log = _log_of(path)
    if log is None or not Path(log).is_dir():
        return
    for file in Path(log).iterdir():
        with suppress(FileNotFoundError):
            file.stat()


def refuse_older(path: str) -> None:
    """OSError when Spark would take the table at `path` for an older version. To be asked before it writes.

    Spark (4.2) leaves out the same files, and then puts a commit of its own in the place of the
    one that it was not told of: that one's rows are gone without a word.
    """
    newest = _newest_commit(path)
    if newest >= 0:
        commit = Path(f"{_log_of(path)}/{newest:020}.json")
        try:
            commit.stat()
        except FileNotFoundError as error:  # the newest is never cleaned up
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(commit)) from error


def _log_of(path: str) -> str | None:
    """The folder of a table's log; None in a store."""
    if path.startswith("file://"):
        path = unquote(path.removeprefix("file://"))
    return None if "://" in path else f"{path}/_delta_log"


def _newest_commit(path: str) -> int:
    """The newest commit by the names in the log; -1 without any, or in a store."""
    log = _log_of(path)
    if log is None:
        return -1
    try:
        with os.scandir(log) as files:
            named = [COMMIT.fullmatch(file.name) for file in files]
    except (FileNotFoundError, NotADirectoryError):
        return -1  # delta-rs says so
    return max((int(found[1]) for found in named if found), default=-1)
