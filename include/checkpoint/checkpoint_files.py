"""The files of a checkpoint, by what Spark means with their names.

    metadata, offsets/<batch>, commits/<batch>, sources/...
    state/<operator>/_metadata, _stateSchema
    state/<operator>/<partition>[/<store>]/{<version>.zip, <version>.changelog, SSTs/..., logs/...}

The store `default` has no folder of its own. A batch N turns version N of the state into
version N + 1. On a local disk Hadoop keeps a checksum `.<name>.crc` beside a file, which
counts as a part of it.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, get_args

from pyarrow import fs

from include.lake.paths import Lake, LakeError

Part = Literal["metadata", "offsets", "commits", "sources", "state", "state_metadata", "unknown"]
Kind = Literal[
    "batch",  # of offsets or commits
    "snapshot",  # a full upload of a version
    "changelog",  # what one batch changed
    "shared",  # an SST or log file of RocksDB, which snapshots name
    "temporary",  # of a write that was not finished
    "foreign",  # state of another provider or format version
    "other",  # known, and needs no closer look
    "unknown",
]

PARTS: tuple[Part, ...] = get_args(Part)
DEFAULT_STORE = "default"
LOGS = ("offsets", "commits")
SCHEMA_FOLDERS = ("_metadata", "_stateSchema")
SHARED_FOLDERS = {"SSTs": ".sst", "logs": ".log"}
CHECKSUM = re.compile(r"(.*/|)\.([^/]+)\.crc")
VERSION = re.compile(r"(\d+)\.(zip|changelog)")
VERSION_KINDS: dict[str, Kind] = {"zip": "snapshot", "changelog": "changelog"}
# Of the HDFS provider; and of checkpoint format 2, which adds an id to each version.
FOREIGN = re.compile(
    r"\d+\.(delta|snapshot)|\d+_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\w+(\.crc)?"
)


class StoreId(NamedTuple):
    """A state store of one partition."""

    operator: int
    partition: int
    store: str

    @property
    def folder(self) -> str:
        """Where its files are, below the checkpoint."""
        partition = f"state/{self.operator}/{self.partition}"
        return partition if self.store == DEFAULT_STORE else f"{partition}/{self.store}"


class Name(NamedTuple):
    """What a name says of its file."""

    part: Part
    kind: Kind
    store: StoreId | None = None  # of the parts "state" only
    number: int | None = None  # the batch of a log, the version of a snapshot or change log


class CheckpointFile(NamedTuple):
    """A file of a checkpoint. Paths begin below the checkpoint's folder."""

    path: str
    bytes: int
    written_ns: int | None  # since 1970; None where the file system does not say
    owner: str  # the file that it is the checksum of; for all others its own path
    name: Name  # the owner's

    @property
    def is_checksum(self) -> bool:
        return self.owner != self.path


def list_checkpoint(lake: Lake, checkpoint: str) -> list[CheckpointFile]:
    """All files below `checkpoint`, from one listing; none when there is no such folder.

    Raises LakeError when it cannot be listed.
    """
    root = lake.path_in_filesystem(checkpoint)
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    try:
        infos = lake.filesystem.get_file_info(selector)
    except (OSError, UnicodeDecodeError) as error:
        raise LakeError(
            f"the checkpoint {checkpoint} cannot be listed: {error}", code="unreadable_checkpoint"
        ) from error
    return [
        _file(info.path[len(root) + 1 :], info)
        for info in infos
        if info.type != fs.FileType.Directory
    ]


def _file(path: str, info: fs.FileInfo) -> CheckpointFile:
    checksum = CHECKSUM.fullmatch(path)
    owner = path if checksum is None else "".join(checksum.groups())
    return CheckpointFile(path, info.size or 0, info.mtime_ns, owner, parse_name(owner))


def parse_name(path: str) -> Name:
    """What the name of the file at `path`, below the checkpoint, says of it."""
    folder, _, name = path.rpartition("/")
    top, *folders = folder.split("/")
    if path == "metadata":
        return Name("metadata", "other")
    if top == "sources":
        return Name("sources", "temporary" if _is_temporary(name) else "other")
    if top in LOGS and not folders:
        return _batch_name("offsets" if top == "offsets" else "commits", name)
    if top == "state" and len(folders) >= 2 and folders[0].isdecimal():
        return _state_name(int(folders[0]), folders[1:], name)
    return Name("unknown", "unknown")


def _batch_name(log: Part, name: str) -> Name:
    if name.isdecimal():
        return Name(log, "batch", number=int(name))
    return Name(log, "temporary") if _is_temporary(name) else Name("unknown", "unknown")


def _state_name(operator: int, folders: Sequence[str], name: str) -> Name:
    # An operator's schemas, or (older kinds of operator) a store's.
    if folders[0] in SCHEMA_FOLDERS or folders[-1] in SCHEMA_FOLDERS:
        return Name("state_metadata", "temporary" if _is_temporary(name) else "other")
    partition, *below = folders
    shared = SHARED_FOLDERS.get(below[-1]) if below else None
    if shared is not None:
        below.pop()
    if not partition.isdecimal() or len(below) > 1:
        return Name("unknown", "unknown")
    store = StoreId(operator, int(partition), below[0] if below else DEFAULT_STORE)
    return _store_name(store, name, shared)


def _store_name(store: StoreId, name: str, shared_suffix: str | None) -> Name:
    if _is_temporary(name):
        return Name("state", "temporary", store)
    if shared_suffix is not None:
        known = name.endswith(shared_suffix)
        return Name("state", "shared", store) if known else Name("unknown", "unknown", store)
    if version := VERSION.fullmatch(name):
        return Name("state", VERSION_KINDS[version[2]], store, int(version[1]))
    if FOREIGN.fullmatch(name):
        return Name("state", "foreign", store)
    return Name("unknown", "unknown", store)


def _is_temporary(name: str) -> bool:
    # Spark writes `.<name>.<id>.tmp`, and renames it when it is complete.
    return name.startswith(".") and name.endswith(".tmp")


def instant(written_ns: int | None) -> datetime | None:
    """When a file was written, as an instant."""
    return None if written_ns is None else datetime.fromtimestamp(written_ns / 1e9, UTC)


def left_over(files: Sequence[CheckpointFile]) -> Iterator[CheckpointFile]:
    """Files that no write will ever come back to: unfinished ones, and checksums of nothing."""
    paths = {file.path for file in files}
    for file in files:
        if file.name.kind == "temporary" or file.owner not in paths:
            yield file
