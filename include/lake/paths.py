"""The paths of a lake: a local folder, or any URI that Hadoop can open."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from textwrap import shorten

from pyarrow import ArrowException, fs

from include.lake.errors import LakeError
from include.lake.s3 import arrow_uri, hadoop_uri, is_plain, is_s3, is_tls_missed
from include.text_table import in_one_line

# In a folder's path: delta-rs (1.6.6) cannot write there, or writes to another place. Surrogates are
# bytes that are no UTF-8.
ODD = re.compile(r"[%\[\\\]^|\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def _below(folder: str) -> "Callable[[Lake, str], str]":
    """Return the method that gives the path of a name in a folder of the lake."""
    return lambda lake, name: f"{lake.root}/{folder}/{name}"


@dataclass(frozen=True)
class Lake:
    """The paths of one lake. `root` has no trailing slash."""

    root: str

    landing = _below("landing")  # of a source
    ingest_log = _below("ingest_log")
    bronze = _below("bronze")
    quarantine = _below("quarantine")
    table = _below("tables")  # of a stream
    dead_letters = _below("dead_letters")
    savepoints = _below("savepoints")
    initial_state = _below("initial_state")
    approval = _below("approvals")  # of a plan
    ops = _below("ops")

    def initial_state_file(self, stream: str) -> str:
        return f"{self.initial_state(stream)}.json"

    def savepoint(self, stream: str, savepoint_id: str) -> str:
        return f"{self.savepoints(stream)}/{savepoint_id}"

    def checkpoint(self, stream: str, generation: int) -> str:
        return f"{self.root}/checkpoints/{stream}/{generation}"

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        return _open_uri(self.root)

    @property
    def filesystem(self) -> fs.FileSystem:
        """The file system that `root` names, for readers without a JVM."""
        return self._opened[0]

    @property
    def is_local(self) -> bool:
        """True of a folder of the operating system."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def path_in_filesystem(self, path: str) -> str:
        """Return `path` (one of the paths above) as `filesystem` spells it."""
        filesystem_root = self._opened[1]
        return filesystem_root + path.removeprefix(self.root)

    def is_delta_table(self, path: str) -> bool:
        """True if a Delta table has been created at `path`."""
        info = self.filesystem.get_file_info(self.path_in_filesystem(f"{path}/_delta_log"))
        return bool(info.type == fs.FileType.Directory)

    def read(self, path: str) -> bytes:
        """Return the bytes of the file at `path`."""
        with self.filesystem.open_input_stream(self.path_in_filesystem(path)) as file:
            return bytes(file.read())

    def write(self, path: str, content: bytes) -> None:
        """Write the file at `path`, whose folder is there. On a disk others may see a part of it."""
        with self.filesystem.open_output_stream(self.path_in_filesystem(path)) as file:
            file.write(content)

    def delete(self, path: str) -> None:
        """Delete the file or folder at `path`, which need not be there."""
        target = self.path_in_filesystem(path)
        kind = self.filesystem.get_file_info(target).type
        if kind != fs.FileType.NotFound:
            is_folder = kind == fs.FileType.Directory
            (self.filesystem.delete_dir if is_folder else self.filesystem.delete_file)(target)

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders below `path`, which need not be there."""
        selector = fs.FileSelector(self.path_in_filesystem(path), allow_not_found=True)
        found = self.filesystem.get_file_info(selector)
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)


def files_of(table: str) -> fs.FileSystem:
    """Return Arrow's own file system for the table at `table`, by paths below it. That of delta-rs is in Python:
    a thread that still reads through it when the interpreter ends aborts the process."""
    filesystem, path = _open_uri(table)
    return fs.SubTreeFileSystem(path, filesystem)


def _open_uri(root: str) -> tuple[fs.FileSystem, str]:
    """Return Arrow's file system for a path or URI, and the path in it, without a trailing slash."""
    if "://" not in root:
        return fs.LocalFileSystem(), root
    filesystem, path = fs.FileSystem.from_uri(arrow_uri(root))
    return filesystem, path.rstrip("/")


def made_lake(root: str) -> Lake:
    """Open the lake at `root`; its folder is made when it is not there."""
    _refuse_odd(root)
    with _as_lake_error(root, "made"):
        filesystem, path = _open_uri(root)
        filesystem.create_dir(path, recursive=True)
    return open_lake(root)


def open_lake(root: str) -> Lake:
    """Open the existing lake at `root`; LakeError where there is none, or it cannot be read or written to."""
    # Delta takes Hadoop's spelling of such a path, file:/x, for another place than file:///x.
    root = root.removeprefix("file://") if root.startswith("file:///") else root
    _refuse_odd(root)
    lake = Lake(hadoop_uri(root).rstrip("/") or "/")
    with _as_lake_error(root, "read"):
        info = lake.filesystem.get_file_info(lake.path_in_filesystem(lake.root))
        if info.type == fs.FileType.NotFound:
            raise LakeError(
                f"no lake at {in_one_line(root)}: create the folder, or give another with --lake",
                code="no_lake",
                subject=root,
            )
        if info.type == fs.FileType.File:
            raise _wrong(root, "is a file: give a folder with --lake")
        lake.filesystem.get_file_info(fs.FileSelector(lake.path_in_filesystem(lake.root)))
    return lake


@contextmanager
def _as_lake_error(root: str, done: str) -> Iterator[None]:
    """Raise LakeError in place of a file system's errors."""
    try:
        yield
    except (OSError, ArrowException) as error:
        # Arrow lists a hundred places where it looked for HDFS' libraries.
        said = f"the lake {in_one_line(root)} cannot be {done}: {shorten(str(error), 300)}"
        raise LakeError(said, subject=root) from error


def _refuse_odd(root: str) -> None:
    """Raise LakeError for a place that some of Hadoop, delta-rs and Arrow cannot open or write to."""
    if is_s3(root) and not is_plain(root):
        raise _wrong(
            root,
            "is not one place for all that open it: give s3a://BUCKET/FOLDER with letters of English, "
            "digits and any of ._=+@- alone",
        )
    if is_s3(root) and is_tls_missed():
        said = "AWS_ENDPOINT_URL is without TLS: set AWS_ALLOW_HTTP=true if that is meant, or give https://"
        raise LakeError(f"the lake {root}: {said}", code="wrong_lake", subject="AWS_ENDPOINT_URL")
    if "://" not in root and (odd := ODD.search(root)):
        raise _wrong(
            root,
            f"has {in_one_line(odd[0])} in its path, where no table can be written: give a folder "
            "without any of %[\\]^|, line ends and the like",
        )


def _wrong(root: str, said: str) -> LakeError:
    return LakeError(f"the lake {in_one_line(root)} {said}", code="wrong_lake", subject=root)
