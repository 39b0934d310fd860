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
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
