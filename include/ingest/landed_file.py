"""The rows of one landed file, as a whole or not at all: JSON, CSV, Parquet, Avro; gzip of any."""

import gzip
import io
import json
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from urllib.parse import unquote

from pyarrow import fs

from include.ingest.connector import ConnectorError, Split, written_at
from include.ingest.landed_avro import AvroRows
from include.ingest.landed_json import CsvRows, JsonRows, csv_row, json_rows
from include.ingest.landed_parquet import ParquetRows
from include.ingest.landed_values import RefusedError, Text, UnreadableFileError, is_read_of_text
from include.lake.paths import Lake
from include.settings import Source

NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_values(name: str, source: Source) -> dict[str, object]:
    """What the folders of the file `name` say of the source's fields, by `Field.landed`."""
    fields = [field for field in source.fields if field.from_folder]
    if not fields:
        return {}
    folders = PurePosixPath(name).parts[:-1]
    found: dict[str, object] = {}
    for field in fields:
        told = [of.removeprefix(field.landed) for of in folders if of.startswith(field.landed)]
        if len(told) > 1 or (field.required and told in ([], [NULL])):
            said = f"its folders say {field.landed} {len(told)} times, expected once"
            raise UnreadableFileError(said)
        text = unquote(told[0]) if told and told[0] != NULL else None
        is_read = text is not None and is_read_of_text(field.type)
        found[field.landed] = Text(text) if is_read else text
    return found


GZIP = b"\x1f\x8b"
# `items` are rows as the format holds them; `values` has one by field, or raises RefusedError; and
# from its `raw` text `row_of_raw` reads the same values again.
LandedRows = JsonRows | CsvRows | ParquetRows | AvroRows


def open_rows(name: str, content: bytes, source: Source) -> LandedRows:
    """The rows of the file `name`; UnreadableFileError when it cannot be read as a whole."""
    opener = opener_of(name)
    if opener is None:
        raise UnreadableFileError(f"unknown ending: known are {', '.join(OPENERS)}, also with .gz")
    if content.startswith(GZIP) or name.lower().endswith(".gz"):
        content = _gunzip(content, source.max_file_bytes)
    return opener(content, source)


def _gunzip(content: bytes, max_bytes: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            found = file.read(max_bytes + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UnreadableFileError(f"not a whole gzip file: {error}") from None
    if len(found) > max_bytes:
        raise UnreadableFileError(f"unpacks to more than {max_bytes} bytes: split it")
    return found


def opener_of(name: str) -> Callable[[bytes, Source], LandedRows] | None:
    stem = name.lower().removesuffix(".gz")
    return next((of for ending, of in OPENERS.items() if stem.endswith(ending)), None)


def row_of_raw(name: str, raw: str, source: Source) -> Mapping[str, object]:
    """The values of one row of the file `name` from its raw text, or a correction: a JSON object, or as
    CSV has it."""
    try:
        folder = folder_values(name, source)
    except UnreadableFileError as error:
        raise RefusedError("missing_field", str(error)) from None
    reads_csv = opener_of(name) is _csv and not _is_object(raw)
    values = csv_row(raw, source) if reads_csv else JsonRows("", source).values(raw)
    return {**values, **folder}


def has_types(name: str) -> bool:
    """Whether values of the file `name` have types that the raw text of its rows does not tell."""
    return opener_of(name) in (ParquetRows, AvroRows)


def _is_object(raw: str) -> bool:
    try:
        return isinstance(json.loads(raw), dict)
    except (ValueError, RecursionError):
        return False


def _json(content: bytes, source: Source) -> LandedRows:
    return json_rows(_text_of(content, "utf-8"), source)


def _csv(content: bytes, source: Source) -> LandedRows:
    return CsvRows(_text_of(content, source.csv.encoding), source)


def _text_of(content: bytes, encoding: str) -> str:
    """The text, without a byte order mark; UnreadableFileError when it is not in the encoding."""
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        said = f"not {encoding.upper()}: {error.reason} at byte {error.start}"
        raise UnreadableFileError(said) from None
    if "\0" in text:
        raise UnreadableFileError("binary: it has NUL bytes")
    return text.removeprefix("\ufeff")


OPENERS: dict[str, Callable[[bytes, Source], LandedRows]] = {
    ".jsonl": _json,
    ".ndjson": _json,
    ".json": _json,
    ".csv": _csv,
    ".parquet": ParquetRows,
    ".avro": AvroRows,
}


Listed = tuple[int, str, int]  # when a file was modified, in nanoseconds; its name; its bytes


def landing_root(lake: Lake, source: str) -> str:
    """The landing folder as the lake's file system spells it, absolute."""
    root = lake.path_in_filesystem(lake.landing(source))
    return os.path.abspath(root) if lake.is_local else root  # noqa: PTH100 (no symlinks)


def landed_files(lake: Lake, source: str) -> list[Split]:
    """All but hidden ones, in the order in which they are taken: the older before the newer."""
    root = landing_root(lake, source)
    listed = sorted(_listed_here(root) if lake.is_local else _listed(lake, root))
    return [
        Split(name, bytes=size, modified_at=written_at(ns // 1000)) for ns, name, size in listed
    ]


def _listed(lake: Lake, root: str) -> Iterator[Listed]:
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    for info in lake.filesystem.get_file_info(selector):
        name = info.path.removeprefix(f"{root}/")
        if info.type == fs.FileType.File and not any(map(_is_hidden, PurePosixPath(name).parts)):
            yield info.mtime_ns or 0, name, info.size


def _listed_here(root: str) -> Iterator[Listed]:
    for folder, folders, names in os.walk(root, onerror=_refuse_unlisted):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        prefix = f"{folder}/".removeprefix(f"{root}/")
        links = (name for name in folders if os.path.islink(f"{folder}/{name}"))  # noqa: PTH114 (as all here)
        for name in (*names, *links):
            if _is_hidden(name):
                continue
            try:
                found = os.lstat(f"{folder}/{name}")
            except FileNotFoundError:
                continue  # removed meanwhile
            yield found.st_mtime_ns, _storable(prefix + name), found.st_size


def _refuse_unlisted(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # removed meanwhile, or nothing has ever landed
        raise error


def _storable(name: str) -> str:
    """The name; one not in UTF-8 with \\x.. for other bytes, and `/`, which no file has there."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"{os.fsencode(name).decode('utf-8', 'backslashreplace')}/"
    return name


def _is_hidden(name: str) -> bool:
    # The rule of Hadoop's listing, with its exceptions.
    if name.startswith(("_common_metadata", "_metadata")):
        return False
    under_score = name.startswith("_") and "=" not in name
    return under_score or name.startswith(".") or name.endswith("._COPYING_")


def read_landed(lake: Lake, root: str, name: str, max_bytes: int) -> bytes:
    """The content of the file `name` below the landing folder `root`.

    UnreadableFileError for what is to be refused; ConnectorError when it is no longer there. Any other
    failure to read is the lake's and not this file's: it fails the run.
    """
    if name.endswith("/"):
        raise UnreadableFileError("its name is not UTF-8 (\\x.. is each byte that is not)")
    path = f"{root}/{name}"
    try:
        if lake.is_local and not stat.S_ISREG(os.lstat(path).st_mode):
            raise UnreadableFileError("it is a link, a pipe or the like: land the file itself")
        with lake.filesystem.open_input_file(path) as file:
            size = file.size()
            if size > max_bytes:
                said = f"{size} bytes, more than the {max_bytes} allowed: split it"
                raise UnreadableFileError(said)
            content = bytes(file.read(size))
        if lake.is_local and os.stat(path).st_size != size:  # noqa: PTH116 (a text, as all here)
            said = "written to while it was read: name it _... until it is whole"
            raise UnreadableFileError(said)
    except PermissionError as error:
        raise UnreadableFileError(f"permission denied: {error.strerror}") from None
    except FileNotFoundError as error:
        said = f"{path} was removed while it was to be taken in, and nothing was: run again"
        raise ConnectorError(said, subject=name) from error
    return content
