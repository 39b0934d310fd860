"""The connector of landed files: they are listed, and each is read whole."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import PurePosixPath

from pyarrow import fs

from include.ingest.formats import LandedRows, open_rows
from include.ingest.ingest_log import read_done
from include.ingest.landed_values import UnreadableFileError
from include.ingest.parse_files import outcomes_of_content
from include.ingest.source_connector import SplitsConnector
from include.ingest.splits import (
    Batch,
    ConnectorError,
    Done,
    Lag,
    NextSplits,
    Outcome,
    ReadSplit,
    Split,
    one_commit,
    written_at,
)
from include.lake.errors import LakeError
from include.lake.paths import Lake
from include.settings import Source
from include.text_table import counted


@dataclass(frozen=True)
class LandedFiles(SplitsConnector):
    """The connector of files in landing."""

    lake: Lake
    source: Source

    @cached_property
    def files(self) -> list[Split]:
        return landed_files(self.lake, self.source.name)

    def next_splits(self, done: Done) -> NextSplits:
        return NextSplits(sorted(one_commit(self._waiting(done), self.source)))

    def lag(self, done: Done) -> Lag:
        sizes = [file.bytes for file in self._waiting(done)]
        return Lag(len(sizes), sum(sizes) <= self.source.spark_bytes)

    def not_again(self) -> str:
        try:
            done = read_done(self.lake, self.source.name)
        except LakeError:
            return super().not_again()
        gone = len(done.names - {file.name for file in self.files})
        if not gone:
            return "all ingested files are still in landing"
        return (
            f"{counted(gone, 'file')} of those ingested are not in landing any more: DATA IS LOST"
        )

    def reader(self, batch: Batch) -> ReadSplit:
        root = landing_root(self.lake, self.source.name)
        return partial(outcomes_of_file, self.lake, root, self.source, batch)

    def _waiting(self, done: Done) -> list[Split]:
        return [file for file in self.files if file.name not in done.names]


def outcomes_of_file(
    lake: Lake, root: str, source: Source, batch: Batch, split: Split
) -> Iterator[Outcome]:
    """Yield an outcome for each row of a file, and last one for the file."""
    name = split.source_file

    def opened() -> LandedRows:
        return open_rows(name, read_landed(lake, root, name, source.max_file_bytes), source)

    yield from outcomes_of_content(opened, source, name, batch.ingested_at_us)


Listed = tuple[int, str, int]  # when a file was modified, in nanoseconds; its name; its bytes


def landing_root(lake: Lake, source: str) -> str:
    """The landing folder as the lake's file system spells it, absolute."""
    root = lake.path_in_filesystem(lake.landing(source))
    return os.path.abspath(root) if lake.is_local else root  # noqa: PTH100 (no symlinks)


def landed_files(lake: Lake, source: str) -> list[Split]:
    """All landed files but hidden ones, the older before the newer, as they are ingested; one commit sorts its own by name."""
    root = landing_root(lake, source)
    found = sorted(_listed_here(root) if lake.is_local else _listed(lake, root))
    return [Split(name, bytes=size, modified_at=written_at(ns // 1000)) for ns, name, size in found]


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
    """The content of a landed file; UnreadableFileError for one to refuse, ConnectorError for one gone."""
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
        said = f"{path} was removed while it was to be ingested, and nothing was: run again"
        raise ConnectorError(said, subject=name) from error
    return content
