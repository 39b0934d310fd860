"""Where everything lies in the lake, as paths; and how it is read without a JVM.

`<lake>` is a local folder or any URI that Hadoop can open. Spark jobs hand these
paths to Spark; Dags and checks open them through pyarrow and delta-rs.
"""

from dataclasses import dataclass
from functools import cached_property

from pyarrow import fs


class LakeError(Exception):
    """The lake, or a table in it, is not there or cannot be read."""


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

    def savepoints(self, stream: str) -> str:
        return f"{self.root}/savepoints/{stream}"

    def ops(self, name: str) -> str:
        return f"{self.root}/ops/{name}"

    def ingest_checkpoint(self, source: str) -> str:
        return f"{self.root}/checkpoints/ingest/{source}"

    def checkpoint(self, stream: str, generation: int) -> str:
        return f"{self.root}/checkpoints/{stream}/{generation}"

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        if "://" not in self.root:
            return fs.LocalFileSystem(), self.root
        filesystem, path = fs.FileSystem.from_uri(self.root)
        return filesystem, path.rstrip("/")

    @property
    def filesystem(self) -> fs.FileSystem:
        """The file system that `root` names, for readers without a JVM."""
        return self._opened[0]

    def path_in_filesystem(self, path: str) -> str:
        """`path` (one of the paths above) as `filesystem` spells it."""
        filesystem_root = self._opened[1]
        return filesystem_root + path.removeprefix(self.root)

    def is_delta_table(self, path: str) -> bool:
        """Whether a Delta table has been created at `path`."""
        info = self.filesystem.get_file_info(self.path_in_filesystem(f"{path}/_delta_log"))
        return bool(info.type == fs.FileType.Directory)


def files_of(table: str) -> fs.FileSystem:
    """The files of the table at `table`, by their paths below it, in Arrow's own file system.

    For `to_pyarrow_dataset(files_of(path))`: delta-rs's is written in Python, and a thread of
    Arrow that still reads through it while the interpreter ends aborts the process.
    """
    if "://" not in table:
        return fs.SubTreeFileSystem(table, fs.LocalFileSystem())
    filesystem, path = fs.FileSystem.from_uri(table)
    return fs.SubTreeFileSystem(path, filesystem)


def open_lake(root: str) -> Lake:
    """The existing lake at `root`.

    Raises LakeError when there is nothing there, when it is a file, or when it cannot be read.
    """
    lake = Lake(root.rstrip("/") or "/")
    try:
        info = lake.filesystem.get_file_info(lake.path_in_filesystem(lake.root))
        if info.type == fs.FileType.NotFound:
            raise LakeError(f"no lake at {root}: create the folder, or give another with LAKE=")
        if info.type == fs.FileType.File:
            raise LakeError(f"the lake {root} is a file: give a folder with LAKE=")
        lake.filesystem.get_file_info(fs.FileSelector(lake.path_in_filesystem(lake.root)))
    except OSError as error:
        raise LakeError(f"the lake {root} cannot be read: {error}") from error
    return lake
