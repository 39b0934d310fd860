"""Delta tables and their logs: opened and read by delta-rs, moved to `set_aside/` where they are damaged."""

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
    """Raise DeltaError in place of a panic of delta-rs, which is no `Exception`."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # it cannot be imported
            raise
        raise DeltaError(f"delta-rs has panicked: {error}") from error


def delta_table(path: str, version: int | None = None) -> DeltaTable:
    """Open the table at `path`, as of a version or its newest."""
    with panics_as_errors():
        return DeltaTable(path, version=version)


LogFiles = frozenset[tuple[str, tuple[int, int]]]  # of each: name, bytes, when it was written


def open_table(path: str, version: int | None = None, log: LogFiles | None = None) -> DeltaTable:
    """Open a table to read: the handle is shared while the log has the same files. LakeError when it cannot be read.

    Never write with it: a commit would move it on for all that hold it.
    """
    with unbroken(path):
        return _as_of_log(path, version, log or files_of_log(path))  # listed first: it may grow


@lru_cache(maxsize=32)  # of a large table each is some megabytes
def _as_of_log(path: str, version: int | None, log: LogFiles) -> DeltaTable:
    return delta_table(path, version)


def files_of_log(path: str) -> LogFiles:
    """Return the log's files without `_last_checkpoint`; OSError where they cannot be listed."""
    files = files_of(path).get_file_info(fs.FileSelector("_delta_log"))
    named = {file.base_name: (file.size or 0, file.mtime_ns or 0) for file in files}
    named.pop("_last_checkpoint", None)
    return frozenset(named.items())


def dataset_of(table: str) -> ds.Dataset:
    """Return the newest version of the Delta table at `table`."""
    return open_table(table).to_pyarrow_dataset(filesystem=files_of(table))


def dataset_without_bounds(path: str) -> ds.Dataset:
    """Return the same without the log's bounds of values, which cost more than reading small files."""
    table = open_table(path)
    bare = table.to_pyarrow_dataset(filesystem=files_of(path), schema=pa.schema([]))
    return bare.replace_schema(pa.schema(table.schema().to_arrow()))


# Errors of a file itself; all others are of the machine, a disk or a network.
OF_FILE = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR),
    *(errno.EEXIST, errno.EINVAL, errno.ENAMETOOLONG),
}
# As Python and Rust write it.
NUMBERED = re.compile(r"\[errno (\d+)\]|\(os error (\d+)\)|Os \{ code: (\d+), kind", re.IGNORECASE)
# As Java's message ends; of a broken connection it also speaks where a worker has died of damage.
OF_DISK = (
    *(errno.EACCES, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE),
    *(errno.ENOMEM, errno.ENOSPC, errno.EPERM, errno.EROFS, errno.ESTALE),
)
# And as Arrow and delta-rs report a store, but for an object that is gone or cut off.
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
    """True if space, rights, memory or open files are short, or a disk, network or store fails.

    That is no damage: ask here before a file is called damaged, or refused.
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
    """Raise LakeError in place of the errors of delta-rs and Arrow for a damaged table."""
    try:
        with panics_as_errors():
            yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        if isinstance(error, CommitFailedError) or is_of_machine(error):
            raise
        raise damaged(path, f"{path} cannot be read ({first_line(error)})") from error


def open_rows_of(lake: Lake, path: str, version: int) -> DeltaTable:
    """Open a table with the rows of one of its versions: that one, or a later one with the same rows, as the
    clean-up of the log removes versions, and may leave commits that only rewrote their rows."""
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
    """Return an error's first line, with the causes that delta-rs puts below it."""
    first, *others = COLOUR.sub("", str(error)).splitlines() or [type(error).__name__]
    causes = (line.strip() for line in others if line.strip().startswith(CAUSE))
    return " ".join([first, *causes])


def message_of(error: Exception) -> str:
    """Return `first_line`, and what to do where the machine and no file is at fault."""
    return f"{first_line(error)}. {AGAIN}" if is_of_machine(error) else first_line(error)


def read_actions(lake: Lake, table: str, version: int) -> list[dict[str, Any]] | None:
    """Return the actions of a table's commit; None when it is not in the log. LakeError when it is damaged."""
    try:
        return actions_in(_commit(lake, table, version))
    except FileNotFoundError:
        return None
    except ValueError as error:
        said = f"the log of {table} cannot be read (commit {version}: {error})"
        raise damaged(table, said) from error


def actions_in(commit: bytes) -> list[dict[str, Any]]:
    """Return the actions in a commit's file; ValueError when it is not whole."""
    # splitlines() would also cut at U+2028, which rows may have.
    return [json.loads(line) for line in commit.decode().split("\n") if line]


def commit_hash(lake: Lake, table: str, version: int) -> str | None:
    """Return the hash that identifies a commit besides its number; None when it was cleaned up."""
    with suppress(FileNotFoundError):
        return hashlib.sha256(_commit(lake, table, version)).hexdigest()[:16]
    return None


def _commit(lake: Lake, table: str, version: int) -> bytes:
    return lake.read(f"{table}/_delta_log/{version:020}.json")


def commit_info(actions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the `commitInfo` of a commit; empty for one without."""
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def adds_data(actions: Sequence[Mapping[str, Any]]) -> bool:
    """True if a commit adds rows, which a stream reads; OPTIMIZE and the like do not."""
    return any(action.get("add", {}).get("dataChange", False) for action in actions)


def changes_data(actions: Sequence[Mapping[str, Any]]) -> bool:
    """True if a commit adds or removes rows, or does not say so."""
    parts = (action.get(kind) for action in actions for kind in ("add", "remove"))
    return any(part.get("dataChange", True) for part in parts if part)


def made_at(actions: Sequence[Mapping[str, Any]]) -> datetime:
    """Return the instant of a commit, by its writer's clock; 1970 if it does not say."""
    return EPOCH + timedelta(milliseconds=commit_info(actions).get("timestamp", 0))


def create_if_absent(
    path: str,
    columns: Iterable[Column],
    comment: str,
    properties: Mapping[str, str],
    partition_by: Sequence[str] = (),
) -> None:
    """Create the Delta table at `path`, without rows; one that is there already stays as it is."""
    if DeltaTable.is_deltatable(path):
        return  # also when its log is damaged: its readers say so
    DeltaTable.create(
        path,
        schema=documented(columns),
        mode="ignore",  # another process may be making it
        partition_by=list(partition_by),
        description=comment,
        configuration={**CHECKPOINT_INTERVAL, **properties},
    )


def found_columns(table: DeltaTable) -> list[tuple[str, pa.DataType]]:
    """Return the names and types of a Delta table's columns."""
    return columns_of(pa.schema(table.schema().to_arrow()))


CHECKED = ds.ParquetFragmentScanOptions(page_checksum_verification=True)


def move_aside(lake: Lake, names: Iterable[str]) -> str:
    """Move tables, such as ops/runs, if they are there; the folder, below the lake's, that they are in now.

    Only while no job writes to them: its rows might be lost.
    """
    target = f"set_aside/{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
    for name in names:
        if is_there(lake, f"{lake.root}/{name}"):
            _move(lake, name, f"{target}/{name}")
    return target


def lying_aside(lake: Lake) -> list[str]:
    """Return the folders, below the lake's, of tables that were moved aside and are still there."""
    return sorted(f"set_aside/{name}" for name in lake.folders(f"{lake.root}/set_aside"))


def is_there(lake: Lake, path: str) -> bool:
    info = lake.filesystem.get_file_info(lake.path_in_filesystem(path))
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
    """Return why a table cannot be read, or its log written to; None: it can, or is not there.

    All rows are read, with the checksums of their pages, unless `is_log_enough`.
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
    # delta-rs takes the schema from the checksum file next to the commit; Spark does not.
    if version == 0 and not read_actions(lake, path, 0):
        return "its first commit is empty, as after a power cut"
    return None
