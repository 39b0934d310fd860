"""What is damaged is moved out of the way, below `set_aside/` of the lake, for it to be made anew."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import PurePosixPath

from pyarrow import fs

from include.lake.paths import Lake


def move_aside(lake: Lake, names: Iterable[str]) -> str:
    """Move tables, such as ops/runs, that are there; the folder, below the lake's, where they lie now.

    To be called while no job writes to them, or where what such a job writes may be lost.
    """
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
