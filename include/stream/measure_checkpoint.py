"""How large a stream's checkpoint is, part by part, what of it is needed, and whether it can be read.

It reads the names and sizes of all files from one listing, and of each snapshot the few kilobytes that
say which SST files it needs. It changes nothing. `check_checkpoint` holds the figures against limits.

    metadata, offsets/<batch>, commits/<batch>, sources/...
    state/<operator>/_metadata, _stateSchema
    state/<operator>/<partition>[/<store>]/{<version>.zip, <version>.changelog, SSTs/..., logs/...}

The store `default` has no folder of its own. A batch N turns version N of the state into
version N + 1. On a local disk Hadoop keeps a checksum `.<name>.crc` beside a file, which
counts as a part of it.
"""

import io
import json
import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    "zip",  # a snapshot: a full upload of a version
    "changelog",  # what one batch changed
    "shared",  # an SST or log file of RocksDB, which snapshots name
    "temporary",  # of a write that was not finished: Spark renames it when it is complete
    "other",  # known, and needs no closer look
]
PARTS: tuple[Part, ...] = get_args(Part)
DEFAULT_STORE = "default"
CHECKSUM = re.compile(r"(.*/|)\.([^/]+)\.crc")
TEMPORARY = r"\.[^/]+\.tmp"
LOG = re.compile(rf"(offsets|commits)/(?:(\d+)|{TEMPORARY})")
SCHEMA = re.compile(r"state/\d+/([^/]+/)*(_metadata|_stateSchema)/.+")
STORE = re.compile(
    r"state/(?P<operator>\d+)/(?P<partition>\d+)/(?:(?P<store>(?!SSTs/|logs/)[^/]+)/)?"
    rf"(?:(?P<version>\d+)\.(?P<kind>zip|changelog)|SSTs/[^/]+\.sst|logs/[^/]+\.log|(?:[^/]+/)?{TEMPORARY})"
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
    kind: Kind = "other"
    store: StoreId | None = None  # of the part "state" only
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
    """All files below `checkpoint`, from one listing; none when there is no such folder. UnreadableError."""
    root = lake.path_in_filesystem(checkpoint)
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    try:
        found = lake.filesystem.get_file_info(selector)
    except (OSError, UnicodeDecodeError) as error:
        if is_of_machine(error):
            raise
        raise UnreadableError(f"it cannot be listed ({error})") from error
    files = (info for info in found if info.type != fs.FileType.Directory)
    return [_file(info.path[len(root) + 1 :], info) for info in files]


def _file(path: str, info: fs.FileInfo) -> CheckpointFile:
    checksum = CHECKSUM.fullmatch(path)
    owner = path if checksum is None else "".join(checksum.groups())
    return CheckpointFile(path, info.size or 0, info.mtime_ns, owner=owner, name=parse_name(owner))


def parse_name(path: str) -> Name:
    """What the name of the file at `path`, below the checkpoint, says of it."""
    is_temporary = re.fullmatch(TEMPORARY, path.rpartition("/")[2]) is not None
    kind: Kind = "temporary" if is_temporary else "other"
    if path == "metadata":
        return Name("metadata")
    if log := LOG.fullmatch(path):
        part: Part = "offsets" if log[1] == "offsets" else "commits"
        return Name(part, kind) if log[2] is None else Name(part, "batch", number=int(log[2]))
    if path.startswith("sources/"):
        return Name("sources", kind)
    if SCHEMA.fullmatch(path):
        return Name("state_metadata", kind)
    if found := STORE.fullmatch(path):
        return _store_name(found, is_temporary)
    return Name("unknown")


def _store_name(found: re.Match[str], is_temporary: bool) -> Name:
    operator, partition, store = found["operator"], found["partition"], found["store"]
    of = StoreId(int(operator), int(partition), store or DEFAULT_STORE)
    if found["version"] is None:
        return Name("state", "temporary" if is_temporary else "shared", of)
    is_snapshot = found["kind"] == "zip"
    return Name("state", "zip" if is_snapshot else "changelog", of, int(found["version"]))


# `metadata` is the older format, of operators whose state never gets another schema.
OPERATOR_METADATA = re.compile(r"state/(\d+)/_metadata/(?:v2/(\d+)|metadata)")
NOT_UNDERSTOOD = (AttributeError, IndexError, KeyError, TypeError, ValueError)


class UnreadableError(Exception):
    """A file of a checkpoint is not what Spark writes, or gone."""


def read_stores(lake: Lake, checkpoint: str, files: Sequence[CheckpointFile]) -> set[StoreId]:
    """The stores that there are, as each operator's newest metadata says; UnreadableError."""
    newest: dict[int, tuple[int, str]] = {}
    for file in files:
        if found := OPERATOR_METADATA.fullmatch(file.path):
            operator, batch = int(found[1]), int(found[2] or 0)
            newest[operator] = max(newest.get(operator, (-1, "")), (batch, file.path))
    return {
        StoreId(operator, partition, store)
        for operator, (_, path) in newest.items()
        for store, partitions in _read_operator(lake, checkpoint, path).items()
        for partition in range(partitions)
    }


def _read_operator(lake: Lake, checkpoint: str, path: str) -> dict[str, int]:
    """The partitions of each store of an operator."""
    try:
        # Line 1 is the format's version.
        metadata = json.loads(lake.read(f"{checkpoint}/{path}").decode().split("\n", 1)[1])
        return {str(s["storeName"]): int(s["numPartitions"]) for s in metadata["stateStoreInfo"]}
    except FileNotFoundError as error:  # since it was listed. Any other says nothing of the file
        raise UnreadableError(f"{path} is gone") from error
    except NOT_UNDERSTOOD as error:
        raise UnreadableError(f"{path} is not what Spark writes ({error!r})") from error


METADATA = "metadata"
METADATA_VERSION = b"v1"
# An object store answers a request in tens of milliseconds, however small the file.
READERS = 8
UNREADABLE = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, *NOT_UNDERSTOOD)


def read_snapshots(
    lake: Lake, checkpoint: str, paths: Iterable[str]
) -> dict[str, Mapping[str, int] | None]:
    """What each snapshot at these paths says it needs, bytes by file name; None of a damaged one."""
    wanted = list(paths)
    with ThreadPoolExecutor(READERS) as readers:
        contents = readers.map(lambda path: _read_snapshot(lake, f"{checkpoint}/{path}"), wanted)
        return dict(zip(wanted, contents, strict=True))


def _read_snapshot(lake: Lake, path: str) -> Mapping[str, int] | None:
    try:
        with zipfile.ZipFile(io.BytesIO(lake.read(path))) as archive:
            version, _, body = archive.read(METADATA).partition(b"\n")
        if version != METADATA_VERSION:
            return None
        named = json.loads(body)
        files = {str(file["dfsSstFileName"]): int(file["sizeBytes"]) for file in named["sstFiles"]}
        for file in named.get("logFiles") or ():
            files[str(file["dfsLogFileName"])] = int(file["sizeBytes"])
    except UNREADABLE as error:
        if is_of_machine(error):
            raise
        return None
    return files


@dataclass(frozen=True, kw_only=True)
class StoreSize:
    """The figures of a state store; some are columns of `ops/checkpoint_sizes`.

    Garbage is what neither a start nor the repair of its snapshot needs: a compaction deletes
    it. Files of a version that no batch has committed count as neither. Orphans are of no version.
    """

    operator: int
    partition: int
    store: str
    bytes: int
    files: int
    versions: int
    newest_version: int | None
    replay_versions: int
    replay_bytes: int
    garbage_bytes: int
    orphan_files: int


class StoreFiles:
    """The files of one store. `start` is the version that the stream's next batch loads."""

    def __init__(
        self,
        store: StoreId,
        files: Sequence[CheckpointFile],
        contents: Mapping[str, Mapping[str, int] | None],
        start: int,
    ) -> None:
        self.store, self._files, self._start = store, files, start
        self._shared = {base_name(f.path): f for f in files if f.name.kind == "shared"}
        needs = {v: contents[file.path] for v, file in self._by_version("zip").items()}
        # One that cannot be loaded is none: a start begins with the one before.
        self._needs = {v: n for v, n in needs.items() if n is not None and self._has(n)}
        self._is_damaged = len(self._needs) < len(needs)
        # Of a batch that changed nothing, too, a change log has bytes: none is a write cut off.
        self._logs = {v: file for v, file in self._by_version("changelog").items() if file.bytes}

    def _by_version(self, kind: Kind) -> dict[int, CheckpointFile]:
        return {
            file.name.number: file
            for file in self._files
            if file.name.kind == kind and file.name.number is not None and not file.is_checksum
        }

    def _has(self, needed: Mapping[str, int]) -> bool:
        sizes = {name: file.bytes for name, file in self._shared.items()}
        return needed.items() <= sizes.items()

    @cached_property
    def readable(self) -> set[int]:
        """The versions up to `start` that can be loaded."""
        found = {0}
        for version in sorted(self._needs.keys() | self._logs.keys()):
            if version in self._needs or version - 1 in found:
                found.add(version)
        return {version for version in found if 0 < version <= self._start}

    @property
    def is_loadable(self) -> bool:
        """Whether the next batch can load its state."""
        return self._start == 0 or self._start in self.readable

    @cached_property
    def _snapshots(self) -> list[int]:
        """Those that a start can begin with, in order."""
        return sorted(version for version in self._needs if version <= self._start)

    @property
    def _newest(self) -> int:
        """The snapshot that a start begins with; 0 for the empty state."""
        return self._snapshots[-1] if self._snapshots else 0

    @cached_property
    def _repair_base(self) -> int:
        """What a start begins with when the newest snapshot cannot be loaded: the one before, or the
        empty state; the newest snapshot itself where nothing older leads to it."""
        if len(self._snapshots) > 1:
            return self._snapshots[-2]
        logs = sum(version <= self._newest for version in self._logs)
        return 0 if logs == self._newest else self._newest

    @cached_property
    def orphans(self) -> list[CheckpointFile]:
        """Files that belong to no version present.

        While the contents of one snapshot are not known, no SST file counts: it may be of that.
        """
        unused = self._shared.keys() - (self._shared if self._is_damaged else self._newest_user)
        left = {file.path for file in left_over(self._files)}
        left |= {
            f.path for f in self._files if f.name.kind == "shared" and base_name(f.owner) in unused
        }
        return [file for file in self._files if file.path in left]

    @cached_property
    def _newest_user(self) -> dict[str, int]:
        """The newest snapshot that needs each shared file."""
        return {name: version for version, needed in sorted(self._needs.items()) for name in needed}

    def _garbage(self) -> list[CheckpointFile]:
        if self._is_damaged:  # Spark fails when it deletes old versions, and only logs that
            return []
        orphans = {file.path for file in self.orphans}
        return [f for f in self._files if f.path not in orphans and self._is_old(f)]

    def _is_old(self, file: CheckpointFile) -> bool:
        version = file.name.number
        if file.name.kind == "shared":
            version = self._newest_user.get(base_name(file.owner))
        return version is not None and version < self._repair_base

    def size(self) -> StoreSize:
        """The store's figures."""
        replayed = [f for v, f in self._logs.items() if self._newest < v <= self._start]
        return StoreSize(
            **self.store._asdict(),
            bytes=total_bytes(self._files),
            files=len(self._files),
            versions=len(self.readable),
            newest_version=max(self.readable, default=None),
            replay_versions=len(replayed),
            replay_bytes=total_bytes(replayed),
            garbage_bytes=total_bytes(self._garbage()),
            orphan_files=len(self.orphans),
        )


def total_bytes(files: Iterable[CheckpointFile]) -> int:
    """The bytes of `files`."""
    return sum(file.bytes for file in files)


def base_name(path: str) -> str:
    """The last part of `path`."""
    return path.rpartition("/")[2]


def left_over(files: Sequence[CheckpointFile]) -> Iterator[CheckpointFile]:
    """Files that no write will ever come back to: unfinished ones, and checksums of nothing."""
    paths = {file.path for file in files}
    for file in files:
        if file.name.kind == "temporary" or file.owner not in paths:
            yield file


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far a query has come: the newest batch that it has begun, and finished."""

    planned: int | None  # in offsets/
    committed: int | None  # in commits/

    @property
    def uncommitted(self) -> int:
        """Batches that were begun, and not finished: Spark repeats the last of them."""
        planned, committed = (-1 if n is None else n for n in (self.planned, self.committed))
        return max(planned - committed, 0)

    @property
    def next_version(self) -> int:
        """The version of the state that the next batch loads: its own number."""
        if self.planned is None:
            return 0
        return self.planned if self.uncommitted else self.planned + 1


@dataclass(frozen=True, kw_only=True)
class PartSize:
    """One part of a checkpoint; "state" is all state stores together."""

    part: Part
    bytes: int
    files: int
    orphan_files: int


@dataclass(frozen=True, kw_only=True)
class CheckpointSize:
    """A checkpoint as it was when it was listed. Without a file it has no parts."""

    stream: str
    generation: int
    checkpoint: str
    measured_at: datetime
    position: Position
    parts: tuple[PartSize, ...] = ()
    stores: tuple[StoreSize, ...] = ()
    unreadable: str | None = None  # why the next batch cannot start with it, if so

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    @property
    def files(self) -> int:
        return sum(part.files for part in self.parts)

    @property
    def state_bytes(self) -> int:
        return sum(part.bytes for part in self.parts if part.part == "state")

    @property
    def garbage_bytes(self) -> int:
        return sum(store.garbage_bytes for store in self.stores)

    @property
    def garbage_share(self) -> float:
        """The part of the state's bytes that neither a start nor a repair needs."""
        return self.garbage_bytes / self.state_bytes if self.state_bytes else 0.0

    @property
    def replay_versions(self) -> int:
        """The most change logs that a partition replays at a start."""
        return max((store.replay_versions for store in self.stores), default=0)


def measure_checkpoint(lake: Lake, stream: str, generation: int) -> CheckpointSize:
    """The size of the checkpoint of `stream`'s `generation`; of no parts when there is none."""
    checkpoint, measured_at = lake.checkpoint(stream, generation), datetime.now(UTC)
    stores: list[StoreFiles] = []
    files: list[CheckpointFile] = []
    position = Position(planned=None, committed=None)
    unreadable = None
    try:
        files = list_checkpoint(lake, checkpoint)
        position = _position(files)
        stores = _stores(lake, checkpoint, files, start=position.next_version)
        _refuse_logs(lake, checkpoint, files, position)
        _refuse_stores(stores, position)
    except UnreadableError as error:
        unreadable = str(error)
    return CheckpointSize(
        stream=stream,
        generation=generation,
        checkpoint=checkpoint,
        measured_at=measured_at,
        position=position,
        parts=tuple(_parts(files, stores)),
        stores=tuple(store.size() for store in stores),
        unreadable=unreadable,
    )


def _position(files: Sequence[CheckpointFile]) -> Position:
    newest: dict[str, int] = {}
    for file in files:
        if file.name.kind == "batch" and file.name.number is not None and not file.is_checksum:
            newest[file.name.part] = max(newest.get(file.name.part, 0), file.name.number)
    return Position(planned=newest.get("offsets"), committed=newest.get("commits"))


def _stores(
    lake: Lake, checkpoint: str, files: Sequence[CheckpointFile], start: int
) -> list[StoreFiles]:
    by_store: dict[StoreId, list[CheckpointFile]] = defaultdict(list)
    for file in files:
        if file.name.store is not None:
            by_store[file.name.store].append(file)
    for store in read_stores(lake, checkpoint, files):
        by_store.setdefault(store, [])
    snapshots = [file.path for file in files if file.name.kind == "zip" and not file.is_checksum]
    contents = read_snapshots(lake, checkpoint, snapshots)
    return [StoreFiles(id, own, contents, start) for id, own in sorted(by_store.items())]


def _parts(files: Sequence[CheckpointFile], stores: Sequence[StoreFiles]) -> Iterator[PartSize]:
    orphans = {file.path for file in left_over(files)}
    orphans |= {file.path for store in stores for file in store.orphans}
    for part in PARTS:
        own = [file for file in files if file.name.part == part]
        if own:
            yield PartSize(
                part=part,
                bytes=total_bytes(own),
                files=len(own),
                orphan_files=sum(file.path in orphans for file in own),
            )


def _refuse_logs(
    lake: Lake, checkpoint: str, files: Sequence[CheckpointFile], position: Position
) -> None:
    """UnreadableError where a file is not as it should be that Spark reads before it goes on."""
    present = {file.path for file in files}
    for path in _needed_logs(files, position):
        if path not in present:
            raise UnreadableError(f"{path} is missing")
        if not _is_whole(lake, f"{checkpoint}/{path}"):
            raise UnreadableError(f"{path} is not what Spark writes: cut off, or damaged")


def _needed_logs(files: Sequence[CheckpointFile], position: Position) -> Iterator[str]:
    planned, committed = position.planned, position.committed
    if planned is None and committed is None:
        if any(f.name.part in ("state", "state_metadata") and not f.is_checksum for f in files):
            yield "offsets/0"  # Spark starts no query on state of no batch
        return
    yield "metadata"
    if planned is not None:
        yield from (f"offsets/{batch}" for batch in (planned - 1, planned) if batch >= 0)
    if committed is not None:
        yield f"commits/{committed}"
        if planned is None or planned < committed:
            yield f"offsets/{committed}"


def _is_whole(lake: Lake, path: str) -> bool:
    """Whether it is a version, which `metadata` has not, and lines of JSON, or `-` for a source
    without an offset."""
    try:
        lines = lake.read(path).decode().split("\n")
        if not path.endswith("/metadata") and not lines.pop(0).removeprefix("v").isdecimal():
            return False
        for line in lines:
            if line != "-":
                json.loads(line)
    except ValueError:
        return False
    return bool(lines)


def _refuse_stores(stores: Sequence[StoreFiles], position: Position) -> None:
    if position.next_version and not stores:
        raise UnreadableError("it has no state")
    for store in stores:
        if not store.is_loadable:
            version = position.next_version
            raise UnreadableError(
                f"files of {store.store.folder} before version {version} are missing"
            )
