"""Delta tables and their logs, opened and read by delta-rs, and moved below `set_aside/` where they are damaged."""

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from pyarrow import fs

from include.fold.admission import EPOCH
from include.lake.columns import CHECKPOINT_INTERVAL, Column, columns_of, documented
from include.lake.errors import LakeError, damaged, subject_of
from include.lake.paths import Lake, files_of


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """DeltaError in place of a panic of delta-rs, as of damage: that is no `Exception`, of which anybody
    would tell."""
    try:
        yield
    except BaseException as error:
        if (
            type(error).__name__ != "PanicException"
        ):  # Rust's libraries give theirs to nobody to import
            raise
        raise DeltaError(f"delta-rs has panicked: {error}") from error


def delta_table(path: str, version: int | None = None) -> DeltaTable:
    """The table at `path`, as of a version or its newest."""
    with panics_as_errors():
        return DeltaTable(path, version=version)


_Log = frozenset[tuple[str, int, int]]  # of each file: name, bytes, and when it was written


def open_table(path: str, version: int | None = None) -> DeltaTable:
    """What `delta_table` opens, shared by all that ask while the log has the same files; LakeError when it
    cannot be read. Never to be written with: a commit would move it on for all that hold it."""
    with unbroken(path):
        log = _log_as_read(path)  # first: what is committed meanwhile is no file of this log
        return _as_of_log(path, version, log) if log else delta_table(path, version)


@lru_cache(maxsize=32)  # of a large table each is some megabytes
def _as_of_log(path: str, version: int | None, log: _Log) -> DeltaTable:
    return delta_table(path, version)


def _log_as_read(path: str) -> _Log:
    """Its files but for the hint where to begin; empty where they cannot be listed."""
    try:
        files = files_of(path).get_file_info(fs.FileSelector("_delta_log"))
    except OSError:
        return frozenset()  # `delta_table` says so
    named = ((file.base_name, file.size or 0, file.mtime_ns or 0) for file in files)
    return frozenset(file for file in named if file[0] != "_last_checkpoint")


def dataset_of(table: str) -> ds.Dataset:
    """The newest version of the Delta table at `table`."""
    return open_table(table).to_pyarrow_dataset(filesystem=files_of(table))


def dataset_without_bounds(path: str) -> ds.Dataset:
    """The same without what the log says of files' values: that costs more than reading what is small."""
    table = open_table(path)
    bare = table.to_pyarrow_dataset(filesystem=files_of(path), schema=pa.schema([]))
    return bare.replace_schema(pa.schema(table.schema().to_arrow()))


# What an operating system says of a file itself; all else is of the machine, a disk or a network.
OF_FILE = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR),
    *(errno.EEXIST, errno.EINVAL, errno.ENAMETOOLONG),
}
# As Python and Rust tell of it.
NUMBERED = re.compile(r"\[errno (\d+)\]|\(os error (\d+)\)|Os \{ code: (\d+), kind", re.IGNORECASE)
# As Java ends with it: of a broken connection it also tells where a worker has died of damage.
OF_DISK = (
    *(errno.EACCES, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE),
    *(errno.ENOMEM, errno.ENOSPC, errno.EPERM, errno.EROFS, errno.ESTALE),
)
# And as stores, by Arrow and delta-rs, tell of all that is not one object's own: that it is gone or cut off.
OF_MACHINE = re.compile(
    rf"({'|'.join(map(os.strerror, OF_DISK))})(\)|$)"
    r"|The operation lacked|Generic (?!LocalFileSystem|DeltaTable)\w+ error"
    r"|AWS Error (?!NO_SUCH_KEY|RESOURCE_NOT_FOUND)\w+( \(HTTP status \d+\))? during ",
    re.IGNORECASE | re.MULTILINE,
)
CUT_OFF = re.compile(r"\(HTTP status 416\)|\b416 Range Not Satisfiable", re.IGNORECASE)
COLOUR = re.compile(r"\x1b\[\d*m")
CAUSE = "↳"  # as delta-rs puts causes below an error
AGAIN = (
    "Nothing is known to be damaged: see to the rights, space, disk or network, and repeat the command. "
    "If a disk never gives a file again, move that away: the next run then names what mends it"
)


def is_of_machine(error: BaseException) -> bool:
    """Whether space, rights, memory or open files are short, or a disk, network or store fails.

    That is no damage: whoever says of a file that it is damaged, or refuses it, asks here first.
    """
    if isinstance(error, (ConnectionError, MemoryError, TimeoutError)):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno not in OF_FILE
    said = str(error)
    numbers = {int(number) for found in NUMBERED.findall(said) for number in found if number}
    is_known = OF_MACHINE.search(said) is not None and CUT_OFF.search(said) is None
    return is_known or not numbers <= OF_FILE


@contextmanager
def unbroken(path: str) -> Iterator[None]:
    """LakeError in place of whatever delta-rs and Arrow say of a table that is damaged."""
    try:
        with panics_as_errors():
            yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        if isinstance(error, CommitFailedError) or is_of_machine(error):
            raise
        raise damaged(path, f"{path} cannot be read ({first_line(error)})") from error


def open_rows_of(lake: Lake, path: str, version: int) -> DeltaTable:
    """A table with the rows of one of its versions: that one, or a later one with the same rows.

    For the clean-up of the log takes versions away, and may leave commits that only rewrote them.
    """
    same, newest = version, open_table(path)
    while same != newest.version():
        try:
            return open_table(path, version=same)
        except LakeError as error:
            same += 1
            actions = read_actions(lake, path, same)
            if actions is None or changes_data(actions):
                if version > newest.version():
                    said = f"ends before version {version} of it, which has been read"
                    raise damaged(path, f"{path} {said}") from error
                raise LakeError(
                    f"the clean-up of its log has taken version {version} away from {path}, and "
                    "newer ones have other rows: run the stream that has read only so far, and repeat",
                    code="cleaned_up_version",
                    subject=subject_of(path),
                ) from error
    return newest


def first_line(error: BaseException) -> str:
    """What an error says, with the causes that delta-rs puts below, and no stack trace of it."""
    first, *others = COLOUR.sub("", str(error)).splitlines() or [type(error).__name__]
    causes = (line.strip() for line in others if line.strip().startswith(CAUSE))
    return " ".join([first, *causes])


def message_of(error: Exception) -> str:
    """`first_line`; of what cannot be had just now with what to do, as no file is known to be broken."""
    return f"{first_line(error)}. {AGAIN}" if is_of_machine(error) else first_line(error)


def read_actions(lake: Lake, table: str, version: int) -> list[dict[str, Any]] | None:
    """The actions of a table's commit; None when it is not in the log. LakeError when it is damaged."""
    try:
        return actions_in(_commit(lake, table, version))
    except FileNotFoundError:
        return None
    except ValueError as error:
        said = f"the log of {table} cannot be read (commit {version}: {error})"
        raise damaged(table, said) from error


def actions_in(commit: bytes) -> list[dict[str, Any]]:
    """Those of a commit's file; ValueError when it is not whole."""
    # splitlines() also cuts at U+2028 and the like, which rows may have.
    return [json.loads(line) for line in commit.decode().split("\n") if line]


def commit_hash(lake: Lake, table: str, version: int) -> str | None:
    """What tells a commit from any other that may have its number; None when it was cleaned up."""
    with suppress(FileNotFoundError):
        return hashlib.sha256(_commit(lake, table, version)).hexdigest()[:16]
    return None


def _commit(lake: Lake, table: str, version: int) -> bytes:
    return lake.read(f"{table}/_delta_log/{version:020}.json")


def commit_info(actions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What a commit says of itself; empty for one that says nothing."""
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def adds_data(actions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a commit adds rows: what a stream reads. OPTIMIZE and the like do not."""
    return any(action.get("add", {}).get("dataChange", False) for action in actions)


def changes_data(actions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a commit adds or takes away rows; one that does not say counts as if it did."""
    parts = (action.get(kind) for action in actions for kind in ("add", "remove"))
    return any(part.get("dataChange", True) for part in parts if part)


def made_at(actions: Sequence[Mapping[str, Any]]) -> datetime:
    """When a commit was made, by its writer's clock; one that does not say is as old as can be."""
    return EPOCH + timedelta(milliseconds=commit_info(actions).get("timestamp", 0))


def create_if_absent(
    path: str,
    columns: Iterable[Column],
    comment: str,
    properties: Mapping[str, str],
    partition_by: Sequence[str] = (),
) -> None:
    """Make the Delta table at `path`, without a row; one that is there already stays as it is."""
    if DeltaTable.is_deltatable(path):
        return  # also when its log is damaged: whoever reads it says so
    DeltaTable.create(
        path,
        schema=documented(columns),
        mode="ignore",  # another process may be making it
        partition_by=list(partition_by),
        description=comment,
        configuration={**CHECKPOINT_INTERVAL, **properties},
    )


def found_columns(table: DeltaTable) -> list[tuple[str, pa.DataType]]:
    """Names and types of a Delta table's columns."""
    return columns_of(pa.schema(table.schema().to_arrow()))


CHECKED = ds.ParquetFragmentScanOptions(page_checksum_verification=True)


def move_aside(lake: Lake, names: Iterable[str]) -> str:
    """Move tables, such as ops/runs, that are there; the folder, below the lake's, where they lie now."""
    # While no job writes to them, or what such a job writes may be lost.
    target = f"set_aside/{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
    for name in names:
        if is_there(lake, name):
            _move(lake, name, f"{target}/{name}")
    return target


def lying_aside(lake: Lake) -> list[str]:
    """The folders, below the lake's, of what was moved aside and is still there."""
    return sorted(f"set_aside/{name}" for name in lake.folders(f"{lake.root}/set_aside"))


def is_there(lake: Lake, name: str) -> bool:
    info = lake.filesystem.get_file_info(lake.path_in_filesystem(f"{lake.root}/{name}"))
    return bool(info.type != fs.FileType.NotFound)


def _move(lake: Lake, name: str, target: str) -> None:
    here, there = (lake.path_in_filesystem(f"{lake.root}/{each}") for each in (name, target))
    files = lake.filesystem
    files.create_dir(str(PurePosixPath(there).parent), recursive=True)
    if isinstance(files, fs.LocalFileSystem):
        files.move(here, there)
        return
    # An object store has no folders to rename.
    fs.copy_files(here, there, source_filesystem=files, destination_filesystem=files)
    files.delete_dir(here)


def why_unreadable(lake: Lake, path: str, is_log_enough: bool = False) -> str | None:
    """Why a table cannot be read, or its log written to; None: it can, or is not there.

    Its rows are read, whose pages are checked, unless `is_log_enough`.
    """
    if not lake.is_delta_table(path):
        return None
    try:
        with unbroken(path):
            version = open_table(path).version()
            if not is_log_enough:
                for _ in dataset_of(path).to_batches(fragment_scan_options=CHECKED):
                    pass
    except LakeError as error:
        return first_line(error.__cause__ or error)
    if commit_hash(lake, path, version) is None:  # the newest is never cleaned up
        return f"its log has lost the commit of its newest version, {version}"
    # delta-rs takes the schema from the sum beside the commit, which Spark does not believe.
    if version == 0 and not read_actions(lake, path, 0):
        return "its first commit is empty, as after a power cut"
    return None
