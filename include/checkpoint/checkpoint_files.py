"""The files of a streaming checkpoint: logs, state stores, snapshots, versions, checksums, as Spark names them.

    metadata, offsets/<batch>, commits/<batch>, sources/...
    state/<operator>/_metadata, _stateSchema
    state/<operator>/<partition>[/<store>]/{<version>.zip, <version>.changelog, SSTs/..., logs/...}

The store `default` has no folder of its own. A batch N turns version N of the state into
version N + 1. On a local disk Hadoop keeps a checksum `.<name>.crc` beside a file, which
counts as a part of it.
"""

import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Literal, NamedTuple, get_args

from pyarrow import fs

from include.lake.delta_log import is_of_machine
from include.lake.paths import Lake

Part = Literal["metadata", "offsets", "commits", "sources", "state", "state_metadata", "unknown"]
Kind = Literal[
    "batch",  # of offsets or commits
    "snapshot",  # a full upload of a version
    "changelog",  # what one batch changed
    "shared",  # an SST or log file of RocksDB, which snapshots name
    "temporary",  # of a write that was not finished
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
    """All files below `checkpoint`, from one listing; none when there is no such folder."""
    root = lake.path_in_filesystem(checkpoint)
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    return [
        _file(info.path[len(root) + 1 :], info)
        for info in lake.filesystem.get_file_info(selector)
        if info.type != fs.FileType.Directory
    ]


def _file(path: str, info: fs.FileInfo) -> CheckpointFile:
    checksum = CHECKSUM.fullmatch(path)
    owner = path if checksum is None else "".join(checksum.groups())
    return CheckpointFile(path, info.size or 0, info.mtime_ns, owner=owner, name=parse_name(owner))


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
        return Name("state", VERSION_KINDS[version[2]], store, number=int(version[1]))
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


def plan_hash(lake: Lake, checkpoint: str, batch_id: int) -> str | None:
    """What tells the plan of a batch from any other of its number, as it says when it was made; None
    when it is not there."""
    try:
        plan = lake.read(f"{checkpoint}/offsets/{batch_id}")
    except FileNotFoundError:
        return None
    return hashlib.sha256(plan).hexdigest()[:16]


def newest_planned(lake: Lake, checkpoint: str) -> int | None:
    """The newest batch that a query on `checkpoint` has begun; None before the first."""
    return _newest_batch(lake, f"{checkpoint}/offsets")


def newest_committed(lake: Lake, checkpoint: str) -> int | None:
    """The newest batch that a query on `checkpoint` has finished; None before the first."""
    return _newest_batch(lake, f"{checkpoint}/commits")


def _newest_batch(lake: Lake, log: str) -> int | None:
    selector = fs.FileSelector(lake.path_in_filesystem(log), allow_not_found=True)
    names = (info.base_name for info in lake.filesystem.get_file_info(selector))
    return max((int(name) for name in names if name.isdecimal()), default=None)


# `metadata` is the older format, of operators whose state never gets another schema.
OPERATOR_METADATA = re.compile(r"state/(\d+)/_metadata/(?:v2/(\d+)|metadata)")
NOT_UNDERSTOOD = (IndexError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class OperatorStores:
    """The partitions of each store by its name. With a `fault` in its file, nothing is known."""

    partitions: Mapping[str, int]
    path: str
    fault: str | None = None


def read_operators(
    lake: Lake, checkpoint: str, files: Sequence[CheckpointFile]
) -> dict[int, OperatorStores]:
    """What each operator's newest metadata says, by the operator's id."""
    newest: dict[int, tuple[int, str]] = {}
    for file in files:
        found = OPERATOR_METADATA.fullmatch(file.path)
        if found:
            operator, batch = int(found[1]), int(found[2] or 0)
            newest[operator] = max(newest.get(operator, (-1, "")), (batch, file.path))
    return {
        operator: _read_stores(lake, checkpoint, path) for operator, (_, path) in newest.items()
    }


def _read_stores(lake: Lake, checkpoint: str, path: str) -> OperatorStores:
    try:
        # Line 1 is the format's version.
        metadata = json.loads(lake.read(f"{checkpoint}/{path}").decode().split("\n", 1)[1])
        stores = {
            str(store["storeName"]): int(store["numPartitions"])
            for store in metadata["stateStoreInfo"]
        }
    except FileNotFoundError as error:  # since it was listed. Any other says nothing of the file
        return OperatorStores({}, path, f"it cannot be read: {error}")
    except NOT_UNDERSTOOD as error:
        return OperatorStores({}, path, f"it is not what Spark writes: {error!r}")
    return OperatorStores(stores, path)


METADATA = "metadata"
METADATA_VERSION = "v1"
# An object store answers a request in tens of milliseconds, however small the file.
READERS = 8
UNREADABLE = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
NO_METADATA = (AttributeError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class SnapshotContents:
    """What a snapshot says it needs: bytes by file name. With a `fault`, nothing is known."""

    shared_files: Mapping[str, int]
    fault: str | None = None


def read_snapshots(
    lake: Lake, checkpoint: str, paths: Iterable[str]
) -> dict[str, SnapshotContents]:
    """The contents of the snapshots at `paths`, below `checkpoint`."""
    wanted = list(paths)
    with ThreadPoolExecutor(READERS) as readers:
        contents = readers.map(lambda path: _read_snapshot(lake, f"{checkpoint}/{path}"), wanted)
        return dict(zip(wanted, contents, strict=True))


def _read_snapshot(lake: Lake, path: str) -> SnapshotContents:
    try:
        with zipfile.ZipFile(io.BytesIO(lake.read(path))) as archive:
            metadata = archive.read(METADATA)
    except FileNotFoundError:
        return SnapshotContents({}, "it vanished while the checkpoint was measured")
    except KeyError:
        return SnapshotContents({}, f"it has no entry {METADATA}")
    except UNREADABLE as error:
        if is_of_machine(error):
            raise
        return SnapshotContents({}, f"it cannot be read: {error or type(error).__name__}")
    return _parse(metadata)


def _parse(metadata: bytes) -> SnapshotContents:
    version, _, body = metadata.partition(b"\n")
    if version.decode(errors="replace") != METADATA_VERSION:
        return SnapshotContents({}, f"its {METADATA} is of version {version!r}, not v1")
    try:
        named = json.loads(body)
        files = {str(file["dfsSstFileName"]): int(file["sizeBytes"]) for file in named["sstFiles"]}
        for file in named.get("logFiles") or ():
            files[str(file["dfsLogFileName"])] = int(file["sizeBytes"])
    except NO_METADATA as error:
        return SnapshotContents({}, f"its {METADATA} is not what Spark writes: {error!r}")
    return SnapshotContents(files)


@dataclass(frozen=True)
class StoreVersions:
    """What one store has; `start` is the version that the stream's next batch loads."""

    snapshots: Set[int]  # whole ones: a start that finds another goes on to an older one
    changelogs: Set[int]
    start: int

    @cached_property
    def readable(self) -> Set[int]:
        """The versions up to `start` that can be loaded."""
        found = {0}
        for version in sorted(self.snapshots | self.changelogs):
            if version in self.snapshots or version - 1 in found:
                found.add(version)
        return {version for version in found if 0 < version <= self.start}

    @cached_property
    def loadable_snapshots(self) -> Set[int]:
        """Those that a start can begin with."""
        return {version for version in self.snapshots if version <= self.start}

    @cached_property
    def newest_snapshot(self) -> int:
        """What a start begins with; 0 for the empty state."""
        return max(self.loadable_snapshots, default=0)

    @cached_property
    def replayed(self) -> Set[int]:
        """The change logs that a start replays."""
        first, last = self.newest_snapshot, self.start
        return {version for version in self.changelogs if first < version <= last}

    @cached_property
    def repair_base(self) -> int:
        """What a start begins with when the newest snapshot cannot be loaded.

        The newest snapshot itself where nothing older leads to it.
        """
        older = [version for version in self.loadable_snapshots if version != self.newest_snapshot]
        if older:
            return max(older)
        logs = sum(version <= self.newest_snapshot for version in self.changelogs)
        return 0 if logs == self.newest_snapshot else self.newest_snapshot

    @property
    def missing(self) -> int | None:
        """The first version without which `start` cannot be loaded; None when it can be."""
        if self.start == 0 or self.start in self.readable:
            return None
        version = self.newest_snapshot + 1
        while version in self.changelogs:
            version += 1
        return version
