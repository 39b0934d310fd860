"""The rows of one landed file: JSON, CSV, Parquet or Avro; gzip of any.

A file is readable as a whole or not at all: opening it reads all of it first, so that a
file which breaks in the middle leaves none of its rows behind.
"""

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Protocol
from urllib.parse import unquote

from include.lake.paths import Lake, LakeError
from include.landing.landed_avro import AvroRows
from include.landing.landed_content import AVRO, PARQUET, is_local, text_of, unpacked, what_it_is
from include.landing.landed_json import CsvRows, JsonRows, csv_row, json_rows
from include.landing.landed_parquet import ParquetRows
from include.landing.landed_values import (
    RefusedError,
    Text,
    UnreadableFileError,
    is_read_of_text,
    shown,
)
from include.settings import Source

NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_values(name: str, source: Source) -> dict[str, object]:
    """What the folders of the file `name` say of the source's fields, by `Field.landed`.

    UnreadableFileError when a required one is missing, or there twice.
    """
    fields = [field for field in source.fields if field.from_folder]
    if not fields:
        return {}
    folders = PurePosixPath(name).parts[:-1]
    found: dict[str, object] = {}
    for field in fields:
        told = [
            part.removeprefix(field.landed) for part in folders if part.startswith(field.landed)
        ]
        if len(told) > 1 or (field.required and told in ([], [NULL])):
            raise UnreadableFileError(
                f"its folder says {field.landed} {len(told)} times, expected once: "
                f"{'/'.join(folders) or 'no folder'}"
            )
        text = unquote(told[0]) if told and told[0] != NULL else None
        is_read = text is not None and is_read_of_text(field.type)
        found[field.landed] = Text(text) if is_read else text
    return found


Item = Any  # one row as its format holds it: a line, some cells, or values
ENDINGS = ".jsonl .ndjson .json .csv .parquet .avro"
OBJECT = re.compile(r'\s*\{\s*["}]')  # how JSON's begin; a CSV's header may begin with a brace, too


class LandedRows(Protocol):
    """What all formats have in common."""

    def items(self) -> Iterator[Item]:
        """The rows; an empty line is no row."""

    def values(self, item: Item) -> Mapping[str, object]:
        """The row by field; RefusedError when it has no fields that could be read."""

    def raw(self, item: Item) -> str:
        """The row as text, from which `row_of_raw` reads the same values again."""


def open_rows(name: str, content: bytes, source: Source) -> LandedRows:
    """The rows of the file `name`, without its folder's fields; UnreadableFileError when it cannot be
    read as a whole."""
    content = unpacked(name, content, source.max_file_bytes)
    opener = opener_of(name)
    if opener is None:
        found = what_it_is(content)
        raise UnreadableFileError(
            f"unknown ending: known are {ENDINGS}, also with .gz; it is {found}"
        )
    return opener(content, source)


def opener_of(name: str) -> Callable[[bytes, Source], LandedRows] | None:
    """What reads files of its ending; None where that is not known."""
    stem = name.lower().removesuffix(".gz")
    return next((of for ending, of in OPENERS.items() if stem.endswith(ending)), None)


def row_of_raw(name: str, raw: str, source: Source) -> Mapping[str, object]:
    """The values of one row of the file `name` from its raw text, or a correction of it.

    A JSON object is taken for any file; a row of a CSV file may also be its header and it.
    """
    try:
        folder = folder_values(name, source)
    except UnreadableFileError as error:
        raise RefusedError("missing_field", str(error)) from None
    is_csv = name.lower().removesuffix(".gz").endswith(".csv")
    reads_csv = is_csv and _is_csv(raw, source)
    values = csv_row(raw, source) if reads_csv else JsonRows("", source).values(raw)
    return {**values, **folder}


def has_types(name: str) -> bool:
    """Whether values of the file `name` have types that the raw text of its rows does not tell."""
    return opener_of(name) in (ParquetRows, AvroRows)


def _is_csv(raw: str, source: Source) -> bool:
    """Without a header line before it, a row whose first cell is JSON begins as a correction does."""
    return not OBJECT.match(raw) or bool(source.csv.header and not _is_json(raw))


def _is_json(raw: str) -> bool:
    try:
        json.loads(raw)
    except ValueError:
        return False
    except RecursionError:
        return True  # as far as that
    return True


def _json(content: bytes, source: Source) -> LandedRows:
    return json_rows(text_of(content), source)


def _csv(content: bytes, source: Source) -> LandedRows:
    if (found := what_it_is(content)) in (PARQUET, AVRO):
        raise UnreadableFileError(f"it is {found}, though it is named .csv")
    return CsvRows(text_of(content, source.csv.encoding), source)


OPENERS: dict[str, Callable[[bytes, Source], LandedRows]] = {
    ".jsonl": _json,
    ".ndjson": _json,
    ".json": _json,
    ".csv": _csv,
    ".parquet": ParquetRows,
    ".avro": AvroRows,
}

MOST_OF_A_PATH = 4_000  # bytes; Linux takes 4,095


class FileGoneError(LakeError):
    """A file was listed, and is no longer in landing."""


def read_landed(lake: Lake, root: str, name: str, max_bytes: int) -> bytes:
    """The content of the file `name` below the landing folder `root`.

    UnreadableFileError for what is to be refused, as of more than `max_bytes`; FileGoneError when it is
    no longer there. Any other failure to read is the lake's and not this file's: it fails the run.
    """
    try:
        if is_local(lake):
            return _read_here(root, name, max_bytes)
        with lake.filesystem.open_input_file(f"{root}/{name}") as file:
            return _read(file, file.size(), max_bytes)
    except PermissionError as error:
        raise UnreadableFileError(f"permission denied: {error.strerror}") from None
    except FileNotFoundError as error:
        raise FileGoneError(
            f"{root}/{name} was removed while it was to be taken in, and nothing was: run again",
            code="lost_input",
            subject=name,
        ) from error


def _read(file: Any, size: int, max_bytes: int) -> bytes:
    if size > max_bytes:
        raise UnreadableFileError(f"{size} bytes, more than the {max_bytes} allowed: split it")
    return bytes(file.read(size))


def _read_here(root: str, name: str, max_bytes: int) -> bytes:
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
        content = _read(file, before.st_size, max_bytes)
        after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise UnreadableFileError(
            "it was written to while it was read: write under a name that begins with _, and rename "
            "it when it is whole"
        )
    return content


def _why_not_taken(path: str) -> str:
    """Of what the listing has named with `/` at its end."""
    if len(os.fsencode(path)) >= MOST_OF_A_PATH:
        return "its path is too long to be opened: land it less deep"
    if os.path.islink(path):  # noqa: PTH114
        return f"a link to {shown(os.readlink(path))}, which is not followed: land the files"  # noqa: PTH115
    if os.path.isdir(path):  # noqa: PTH112
        return "a folder that may not be listed: permission denied"
    return "its name is not UTF-8 (\\x.. is each byte that is not): rename it"
