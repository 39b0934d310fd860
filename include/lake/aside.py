"""What is damaged is moved out of the way, below `set_aside/` of the lake, for it to be made anew."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import PurePosixPath

import pyarrow.dataset as ds
from pyarrow import fs

from include.lake.delta_log import (
    commit_hash,
    dataset_of,
    first_line,
    open_table,
    read_actions,
    unbroken,
)
from include.lake.errors import LakeError
from include.lake.paths import Lake

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
