"""Where everything lies in the lake, as paths; and how it is read without a JVM.

`<lake>` is a local folder or any URI that Hadoop can open. Spark jobs hand these
paths to Spark; Dags and checks open them through pyarrow and delta-rs.
"""

import unicodedata
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import shorten

from pyarrow import ArrowException, fs

from include.lake.errors import LakeError
from include.lake.s3 import arrow_uri, hadoop_uri, is_plain, is_s3, is_tls_missed
from include.text_table import in_one_line

REASON_CHARACTERS = 300
# Of a folder's path: delta-rs (1.6.6) cannot write there, or writes to another place.
ODD_LETTERS = "%[\\]^|"


@dataclass(frozen=True)
class Lake:
    """The paths of one lake. `root` has no trailing slash."""

    root: str

    def landing(self, source: str) -> str:
        return f"{self.root}/landing/{source}"

    def bronze(self, source: str) -> str:
        return f"{self.root}/bronze/{source}"

    def quarantine(self, source: str) -> str:
        return f"{self.root}/quarantine/{source}"

    def initial_state(self, stream: str) -> str:
        return f"{self.root}/initial_state/{stream}"

    def initial_state_file(self, stream: str) -> str:
        return f"{self.initial_state(stream)}.json"

    def table(self, stream: str) -> str:
        return f"{self.root}/tables/{stream}"

    def dead_letters(self, stream: str) -> str:
        return f"{self.root}/dead_letters/{stream}"

    def savepoints(self, stream: str) -> str:
        return f"{self.root}/savepoints/{stream}"

    def savepoint(self, stream: str, savepoint_id: str) -> str:
        return f"{self.savepoints(stream)}/{savepoint_id}"

    def ops(self, name: str) -> str:
        return f"{self.root}/ops/{name}"

    def ingest_log(self, source: str) -> str:
        return f"{self.root}/ingest_log/{source}"

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
        """Whether it is a folder of the operating system."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def path_in_filesystem(self, path: str) -> str:
        """`path` (one of the paths above) as `filesystem` spells it."""
        filesystem_root = self._opened[1]
        return filesystem_root + path.removeprefix(self.root)

    def is_delta_table(self, path: str) -> bool:
        """Whether a Delta table has been created at `path`."""
        info = self.filesystem.get_file_info(self.path_in_filesystem(f"{path}/_delta_log"))
        return bool(info.type == fs.FileType.Directory)

    def read(self, path: str) -> bytes:
        """What the file at `path` has."""
        with self.filesystem.open_input_stream(self.path_in_filesystem(path)) as file:
            return bytes(file.read())

    def write(self, path: str, content: bytes) -> None:
        """Make the file at `path`, in a folder that is there. On a disk a part of it may be seen."""
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
        """The names of the folders below `path`, which need not be there."""
        selector = fs.FileSelector(self.path_in_filesystem(path), allow_not_found=True)
        found = self.filesystem.get_file_info(selector)
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)


def files_of(table: str) -> fs.FileSystem:
    """The files of the table at `table`, by their paths below it, in Arrow's own file system.

    To give to delta-rs where it reads: its own is written in Python, and a thread of Arrow that
    still reads through that while the interpreter ends aborts the process.
    """
    filesystem, path = _open_uri(table)
    return fs.SubTreeFileSystem(path, filesystem)


def _open_uri(root: str) -> tuple[fs.FileSystem, str]:
    """Arrow's file system for a path or URI, and the path in it, without a trailing slash."""
    if "://" not in root:
        return fs.LocalFileSystem(), root
    filesystem, path = fs.FileSystem.from_uri(arrow_uri(root))
    return filesystem, path.rstrip("/")


def made_lake(root: str) -> Lake:
    """The readable lake at `root`; its folder is made when it is not there."""
    _refuse_odd_s3(root)
    try:
        if "://" in root:
            filesystem, path = _open_uri(root)
            filesystem.create_dir(path, recursive=True)
        else:
            Path(root).mkdir(parents=True, exist_ok=True)
    except (OSError, ArrowException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = shorten(reason, REASON_CHARACTERS)
        raise LakeError(
            f"the lake {in_one_line(root)} cannot be made: {reason}", subject=root
        ) from error
    return open_lake(root)


def _refuse_odd_s3(root: str) -> None:
    """LakeError for a place on S3 that cannot be opened, or not by all."""
    if not is_s3(root):
        return
    if not is_plain(root):
        raise LakeError(
            f"the lake {in_one_line(root)} is not one place for all that open it: give s3a://BUCKET/FOLDER "
            "with letters of English, digits and any of ._=+@- alone",
            code="wrong_lake",
            subject=root,
        )
    if is_tls_missed():
        raise LakeError(
            f"the lake {root}: AWS_ENDPOINT_URL is without TLS: set AWS_ALLOW_HTTP=true if that is "
            "meant, or give an https:// address",
            code="wrong_lake",
            subject="AWS_ENDPOINT_URL",
        )


def open_lake(root: str) -> Lake:
    """The existing lake at `root`.

    Raises LakeError when there is nothing there, when it is a file, or when it cannot be read, or
    written to for the letters of its path.
    """
    # Delta takes Hadoop's spelling of such a path, file:/x, for another place than file:///x.
    root = root.removeprefix("file://") if root.startswith("file:///") else root
    told = in_one_line(root)
    # Also letters that stand for bytes which are no UTF-8.
    kinds = ((letter, unicodedata.category(letter)) for letter in root)
    odd = next((of for of, kind in kinds if of in ODD_LETTERS or kind in ("Cc", "Cs")), None)
    if odd and "://" not in root:
        raise LakeError(
            f"the lake {told} has {in_one_line(odd)} in its path, where no table can be "
            f"written: give a folder without any of {ODD_LETTERS}, line ends and the like",
            code="wrong_lake",
            subject=root,
        )
    _refuse_odd_s3(root)
    lake = Lake(hadoop_uri(root).rstrip("/") or "/")
    try:
        info = lake.filesystem.get_file_info(lake.path_in_filesystem(lake.root))
        if info.type == fs.FileType.NotFound:
            raise LakeError(
                f"no lake at {told}: create the folder, or give another with --lake",
                code="no_lake",
                subject=root,
            )
        if info.type == fs.FileType.File:
            raise LakeError(
                f"the lake {told} is a file: give a folder with --lake",
                code="wrong_lake",
                subject=root,
            )
        lake.filesystem.get_file_info(fs.FileSelector(lake.path_in_filesystem(lake.root)))
    except (OSError, ArrowException) as error:
        # Arrow tells of a hundred places where it looked for HDFS' libraries.
        reason = shorten(str(error), REASON_CHARACTERS)
        raise LakeError(f"the lake {told} cannot be read: {reason}", subject=root) from error
    return lake
