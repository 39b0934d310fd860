"""After a run that an error of Spark's or Delta's has ended: what is broken, where, and what mends it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from include.lake.delta_log import first_line, is_of_machine, open_table
from include.lake.errors import LakeError, StatefulError, damaged
from include.lake.findings import Finding
from include.lake.generations import read_generations
from include.lake.paths import Lake
from include.maintain.check_checkpoint import check_checkpoint, record_check
from include.maintain.plan_care import lost_files
from include.settings import Stream
from include.text_table import first_names

# A file, and not a folder: those Spark names in the words for any failure.
FILE = r"((?:bronze|tables|checkpoints)/[^\s'\",)\]]+?\.(?:parquet|json|changelog|zip)\b)"
# Spark's class of error; of a damaged change log it names no file.
NO_STATE = "CANNOT_LOAD_STATE_STORE"
CAUSED_BY = "Caused by: "
# Of Python, Arrow and the JVM (OutOfMemoryError); and of a worker that was killed.
OF_MEMORY = ("MemoryError", "Python worker exited unexpectedly")


class BrokenLakeError(StatefulError):
    """A file of the lake is gone or damaged; the message says which, and what to do."""

    code = "unreadable_table"
    exit_code = 1


@contextmanager
def told_why(lake: Lake, stream: Stream) -> Iterator[None]:
    """BrokenLakeError from an error of the body that comes of a broken file of the stream's.

    To be entered outside of its lease: while somebody works on it, what is half written looks broken.
    """
    try:
        yield
    except StatefulError:
        raise
    except Exception as error:
        if is_of_machine(error) or (found := why_failed(lake, stream, error)) is None:
            raise
        raise found from error


def why_failed(lake: Lake, stream: Stream, error: Exception) -> BrokenLakeError | None:
    """File, cause and command; None when nothing of the lake is found to be broken."""
    result = check_checkpoint(lake, stream)
    record_check(lake, result)
    errors = {found.finding: found for found in result.findings if found.severity == "error"}
    # That the coverage cannot be read says less than the file for which it cannot.
    unread = errors.pop("coverage_unreadable", None)
    for found in errors.values():
        return _of_finding(stream, found, "unreadable_checkpoint")
    return (
        _of_table(lake, f"bronze/{stream.source}")
        or _of_table(lake, f"tables/{stream.name}")
        or _of_what_it_names(lake, stream, error)
        or (None if unread is None else _of_finding(stream, unread, "unreadable_table"))
    )


def _of_finding(stream: Stream, found: Finding, code: str) -> BrokenLakeError:
    told = f"{found.finding}: {found.detail}. To do: {found.action}"
    return BrokenLakeError(told, code=code, subject=stream.name)


def _broken(path: str, what: str) -> BrokenLakeError:
    error = damaged(path, what)
    return BrokenLakeError(
        error.message, code=error.code, subject=error.subject, command=error.command
    )


def _of_table(lake: Lake, name: str) -> BrokenLakeError | None:
    path = f"{lake.root}/{name}"
    if not lake.is_delta_table(path):
        return None
    try:
        lost = lost_files(lake, path, open_table(path))
    except LakeError as error:
        return _broken(name, error.message)
    if not lost:
        return None
    return _broken(name, f"{path} has lost {first_names(lost)}, or they are damaged")


def _of_what_it_names(lake: Lake, stream: Stream, error: Exception) -> BrokenLakeError | None:
    """Of a file whose bytes are not what was written, by the error's own words alone; of one that was
    at hand when memory ran out, nothing."""
    said = str(error)
    if any(words in said for words in OF_MEMORY):
        return None
    root = re.escape(lake.path_in_filesystem(lake.root))
    # Of a path delta-rs leaves the first slash away.
    if named := re.search(f"{root.removeprefix('/')}/{FILE}", said):
        cause = first_line(error)
        return _broken(named[1], f"{lake.root}/{named[1]} cannot be read ({cause})")
    if NO_STATE not in said:
        return None
    path = lake.checkpoint(stream.name, read_generations(lake, stream.name).number)
    # The last of the causes that a JVM has told; what comes first is how it came to Python.
    causes = [line for line in said.splitlines() if line.startswith(CAUSED_BY)]
    cause = causes[-1].removeprefix(CAUSED_BY) if causes else first_line(error)
    what = f"a file of the state in {path} cannot be read ({cause})"
    return _broken(f"checkpoints/{stream.name}", what)
