"""A landed file, opened to be read: or why it is refused, by its name alone.

A link out of landing would bring files of this machine into tables that others read; a pipe would
wait for ever; of a file that is still written to, the rest would never come.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote
from typing import Any, NamedTuple

from include.lake.paths import Lake, LakeError
from include.landing.landed_files import is_local
from include.landing.refusals import UnreadableFileError, shown

MOST_OF_A_PATH = 4_000  # bytes; Linux takes 4,095


class FileGoneError(LakeError):
    """A file was listed, or planned, and is no longer in landing."""


class Opened(NamedTuple):
    """A file to be read from its begin."""

    file: Any  # binary: Python's or Arrow's
    bytes: int


def read_landed(lake: Lake, root: str, name: str, max_bytes: int) -> bytes:
    """The content of the file `name` below the landing folder `root`; fails as `open_landed`.

    UnreadableFileError for one of more than `max_bytes`, too.
    """
    with open_landed(lake, root, name) as opened:
        if opened.bytes > max_bytes:
            raise UnreadableFileError(
                f"{opened.bytes} bytes, more than the {max_bytes} allowed: split it"
            )
        return bytes(opened.file.read(opened.bytes))


@contextmanager
def open_landed(lake: Lake, root: str, name: str) -> Iterator[Opened]:
    """UnreadableFileError for what is to be refused; FileGoneError when it is no longer there.

    Any other failure to read is the lake's and not this file's: it fails the run.
    """
    opened = _opened_here(root, name) if is_local(lake) else _opened(lake, f"{root}/{name}")
    try:
        with opened as found:
            yield found
    except PermissionError as error:
        raise UnreadableFileError(f"permission denied: {error.strerror}") from None
    except FileNotFoundError as error:
        source = os.path.basename(root)  # noqa: PTH119 (an object store has such paths, too)
        raise FileGoneError(
            f"{root}/{name} was to be taken in and is gone: put it back, as a part of its batch may "
            "be in bronze already, then run again; or give it up",
            code="lost_input",
            subject=name,
            command=f"./stateful skip-file {source} {quote(name)} --apply",
        ) from error


@contextmanager
def _opened(lake: Lake, path: str) -> Iterator[Opened]:
    with lake.filesystem.open_input_file(path) as file:
        yield Opened(file, file.size())


@contextmanager
def _opened_here(root: str, name: str) -> Iterator[Opened]:
    path = f"{root}/{name}"
    if name.endswith("/"):
        raise UnreadableFileError(_why_not_taken(path.rstrip("/")))
    real = os.path.realpath(path)
    if not real.startswith(f"{os.path.realpath(root)}/"):
        raise UnreadableFileError(
            f"a link to {shown(real)}, which is not in landing: land the file itself"
        )
    if not stat.S_ISREG(os.stat(real).st_mode):  # noqa: PTH116 (a text, as all here)
        raise UnreadableFileError("no regular file, such as a pipe: land a file")
    # Should it be another by now, it neither leads elsewhere nor waits for somebody who writes.
    descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        before = os.fstat(descriptor)
        yield Opened(file, before.st_size)
        after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise UnreadableFileError(
            "it was written to while it was read: write under a name that begins with _, and rename "
            "it when it is whole"
        )


def _why_not_taken(path: str) -> str:
    """Of what the listing has named with `/` at its end."""
    if len(os.fsencode(path)) >= MOST_OF_A_PATH:
        return "its path is too long to be opened: land it less deep"
    if os.path.islink(path):  # noqa: PTH114
        return f"a link to {shown(os.readlink(path))}, which is not followed: land the files"  # noqa: PTH115
    if os.path.isdir(path):  # noqa: PTH112
        return "a folder that may not be listed: permission denied"
    return "its name is not UTF-8 (\\x.. is each byte that is not): rename it"
