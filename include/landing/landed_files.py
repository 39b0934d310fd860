"""The files in a source's landing folder: what ingestion would see of them.

A file is known by its name alone: one that is changed after it was taken is not taken again.
Producers write under a hidden name (`_x`, `.x`) and rename when done.
"""

import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from pyarrow import fs

from include.lake.paths import Lake


class LandedFile(NamedTuple):
    """A file as the listing has it. In this order files are taken: the older before the newer."""

    modified_ns: int
    name: str  # below landing/<source>
    bytes: int


def landed_files(lake: Lake, source: str) -> list[LandedFile]:
    """All but hidden ones, in the order in which they are taken."""
    root = landing_root(lake, source)
    return sorted(_listed(lake, root))


def _listed(lake: Lake, root: str) -> Iterator[LandedFile]:
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    for info in lake.filesystem.get_file_info(selector):
        name = info.path.removeprefix(f"{root}/")
        if info.type == fs.FileType.File and not any(map(_is_hidden, PurePosixPath(name).parts)):
            yield LandedFile(info.mtime_ns or 0, name, info.size)


def _is_hidden(name: str) -> bool:
    # The rule of Hadoop's listing, with its exceptions: release 0.5 went by that.
    if name.startswith(("_common_metadata", "_metadata")):
        return False
    under_score = name.startswith("_") and "=" not in name
    return under_score or name.startswith(".") or name.endswith("._COPYING_")


def landing_root(lake: Lake, source: str) -> str:
    """The landing folder as the lake's file system spells it, absolute."""
    root = lake.path_in_filesystem(lake.landing(source))
    return os.path.abspath(root) if isinstance(lake.filesystem, fs.LocalFileSystem) else root  # noqa: PTH100 (no symlinks)
