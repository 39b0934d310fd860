"""The files in a source's landing folder: what ingestion would see of them.

A file is known by its name alone: one that is changed after it was taken is not taken again.
Producers write under a hidden name (`_x`, `.x`) and rename when done.

What cannot be taken by its name is listed, too, so that it is refused and does not stop the others:
under a name that ends with `/`, as no file's does.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from pyarrow import fs

from include.lake.paths import Lake

# A folder or file that may be there, and is not to be looked at: of one's own, or too deep.
CLOSED = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)


class LandedFile(NamedTuple):
    """A file as the listing has it. In this order files are taken: the older before the newer."""

    modified_ns: int
    name: str  # below landing/<source>
    bytes: int


def landed_files(lake: Lake, source: str) -> list[LandedFile]:
    """All but hidden ones, in the order in which they are taken."""
    root = landing_root(lake, source)
    return sorted(_listed_here(root) if is_local(lake) else _listed(lake, root))


def is_local(lake: Lake) -> bool:
    """Whether landing is a folder of the operating system, with links, pipes and any bytes in names."""
    return isinstance(lake.filesystem, fs.LocalFileSystem)


def _listed(lake: Lake, root: str) -> Iterator[LandedFile]:
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    for info in lake.filesystem.get_file_info(selector):
        name = info.path.removeprefix(f"{root}/")
        if info.type == fs.FileType.File and not any(map(_is_hidden, PurePosixPath(name).parts)):
            yield LandedFile(info.mtime_ns or 0, name, info.size)


def _listed_here(root: str) -> Iterator[LandedFile]:
    """Links to folders are not followed: they may lead anywhere, and around."""
    folders = [""]  # and not by recursion: there may be thousands within each other
    while folders:
        below = folders.pop()
        try:
            with os.scandir(f"{root}/{below}") as found:
                entries = [entry for entry in found if not _is_hidden(entry.name)]
        except FileNotFoundError:
            continue  # removed meanwhile, or nothing has ever landed
        except OSError as error:
            if not below or error.errno not in CLOSED:
                raise
            yield LandedFile(0, below, 0)
            continue
        for entry in entries:
            name = _storable(f"{below}{entry.name}")
            if entry.is_dir(follow_symlinks=False) and not name.endswith("/"):
                folders.append(f"{name}/")
            elif file := _file_here(entry, name):
                yield file


def _file_here(entry: os.DirEntry[str], name: str) -> LandedFile | None:
    """None of a pipe, a socket, a device, and a link to nothing."""
    try:
        found = entry.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in CLOSED:
            raise
        return LandedFile(0, _not_taken(name), 0)
    if stat.S_ISDIR(found.st_mode):
        return LandedFile(0, _not_taken(name), 0)
    return (
        LandedFile(found.st_mtime_ns, name, found.st_size) if stat.S_ISREG(found.st_mode) else None
    )


def _storable(name: str) -> str:
    """The name, or if it is not UTF-8 one with \\x.. for each other byte, and `/`."""
    try:
        name.encode()
    except UnicodeEncodeError:
        whole = os.fsencode(name.replace("\\", "\\\\"))
        return _not_taken(whole.decode("utf-8", "backslashreplace"))
    return name


def _not_taken(name: str) -> str:
    return name if name.endswith("/") else f"{name}/"


def _is_hidden(name: str) -> bool:
    # The rule of Hadoop's listing, with its exceptions.
    if name.startswith(("_common_metadata", "_metadata")):
        return False
    under_score = name.startswith("_") and "=" not in name
    return under_score or name.startswith(".") or name.endswith("._COPYING_")


def landing_root(lake: Lake, source: str) -> str:
    """The landing folder as the lake's file system spells it, absolute."""
    root = lake.path_in_filesystem(lake.landing(source))
    return os.path.abspath(root) if is_local(lake) else root  # noqa: PTH100 (no symlinks)
