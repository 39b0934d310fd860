"""After a run that an error of Spark's or Delta's has ended: what is broken, where, and what mends it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from include.lake.delta_log import first_line, is_of_machine
from include.lake.errors import LakeError, StatefulError, damaged
from include.lake.findings import Finding
from include.lake.generations import read_generations
from include.lake.paths import Lake
from include.maintain.check_checkpoint import check_checkpoint, record_check
from include.settings import Stream

# A file, and not a folder: those Spark names in the words for any failure.
FILE = r"((?:bronze|tables|checkpoints)/[^\s'\",)\]]+?\.(?:parquet|json|changelog|zip)\b)"
# Spark's class of error; of a damaged change log it names no file.
NO_STATE = "CANNOT_LOAD_STATE_STORE"
CAUSED_BY = "Caused by: "
# Of Python, Arrow and the JVM (OutOfMemoryError); and of a worker that was killed.
OF_MEMORY = ("MemoryError", "Python worker exited unexpectedly")


@contextmanager
def told_why(lake: Lake, stream: Stream) -> Iterator[None]:
    """LakeError from an error of the body that comes of a broken file of the stream's.

    To be entered outside of its lease: while somebody works on it, what is half written looks broken.
    """
    try:
        yield
    except StatefulError:
        raise
    except Exception as error:
        if is_of_machine(error) or (found := why_failed(lake, stream, error)) is None:
            raise
        found.exit_code = 1
        raise found from error


def why_failed(lake: Lake, stream: Stream, error: Exception) -> LakeError | None:
    """By the check's verdict, or else by the error's own words; None when nothing is found to be broken."""
    result = check_checkpoint(lake, stream)
    record_check(lake, result)
    errors = {found.finding: found for found in result.findings if found.severity == "error"}
    # That the coverage cannot be read says less than the file for which it cannot.
    unread = errors.pop("coverage_unreadable", None)
    for found in errors.values():
        return _of_finding(stream, found, "unreadable_checkpoint")
    named = _of_what_it_names(lake, stream, error)
    if named is None and unread is not None:
        return _of_finding(stream, unread, "unreadable_table")
    return named


def _of_finding(stream: Stream, found: Finding, code: str) -> LakeError:
    told = f"{found.finding}: {found.detail}. To do: {found.action}"
    return LakeError(told, code=code, subject=stream.name)


def _of_what_it_names(lake: Lake, stream: Stream, error: Exception) -> LakeError | None:
    """Of a file whose bytes are not what was written; of one that was at hand when memory ran out, nothing."""
    said = str(error)
    if any(words in said for words in OF_MEMORY):
        return None
    root = re.escape(lake.path_in_filesystem(lake.root))
    # Of a path delta-rs leaves the first slash away.
    if named := re.search(f"{root.removeprefix('/')}/{FILE}", said):
        cause = first_line(error)
        return damaged(named[1], f"{lake.root}/{named[1]} cannot be read ({cause})")
    if NO_STATE not in said:
        return None
    path = lake.checkpoint(stream.name, read_generations(lake, stream.name).number)
    # The last of the causes that a JVM has told; what comes first is how it came to Python.
    causes = [line for line in said.splitlines() if line.startswith(CAUSED_BY)]
    cause = causes[-1].removeprefix(CAUSED_BY) if causes else first_line(error)
    what = f"a file of the state in {path} cannot be read ({cause})"
    return damaged(f"checkpoints/{stream.name}", what)
