"""The files in a landing folder: which there are, and their bytes."""

import os
import stat
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from pyarrow import fs

from include.lake.errors import LakeError
from include.lake.paths import Lake
from include.landing.landed_values import UnreadableFileError


class LandedFile(NamedTuple):
    """A file as the listing has it. In this order files are taken: the older before the newer."""

    modified_ns: int
    name: str  # below landing/<source>
    bytes: int


def landing_root(lake: Lake, source: str) -> str:
    """The landing folder as the lake's file system spells it, absolute."""
    root = lake.path_in_filesystem(lake.landing(source))
    return os.path.abspath(root) if lake.is_local else root  # noqa: PTH100 (no symlinks)


def landed_files(lake: Lake, source: str) -> list[LandedFile]:
    """All but hidden ones, in the order in which they are taken."""
    root = landing_root(lake, source)
    return sorted(_listed_here(root) if lake.is_local else _listed(lake, root))


def _listed(lake: Lake, root: str) -> Iterator[LandedFile]:
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    for info in lake.filesystem.get_file_info(selector):
        name = info.path.removeprefix(f"{root}/")
        if info.type == fs.FileType.File and not any(map(_is_hidden, PurePosixPath(name).parts)):
            yield LandedFile(info.mtime_ns or 0, name, info.size)


def _listed_here(root: str) -> Iterator[LandedFile]:
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
            yield LandedFile(found.st_mtime_ns, _storable(prefix + name), found.st_size)


def _refuse_unlisted(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # removed meanwhile, or nothing has ever landed
        raise error


def _storable(name: str) -> str:
    """The name; if it is not UTF-8, with \\x.. for each other byte and `/`, which no file can have there."""
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


class FileGoneError(LakeError):
    """A file was listed, and is no longer in landing."""


def read_landed(lake: Lake, root: str, name: str, max_bytes: int) -> bytes:
    """The content of the file `name` below the landing folder `root`.

    UnreadableFileError for what is to be refused, as of more than `max_bytes`; FileGoneError when it is
    no longer there. Any other failure to read is the lake's and not this file's: it fails the run.
    """
    if name.endswith("/"):
        raise UnreadableFileError(
            "its name is not UTF-8 (\\x.. is each byte that is not): rename it"
        )
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
            raise UnreadableFileError(
                "it was written to while it was read: write under a name that begins with _, and rename "
                "it when it is whole"
            )
    except PermissionError as error:
        raise UnreadableFileError(f"permission denied: {error.strerror}") from None
    except FileNotFoundError as error:
        raise FileGoneError(
            f"{path} was removed while it was to be taken in, and nothing was: run again",
            code="lost_input",
            subject=name,
        ) from error
    return content
