"""How large a stream's checkpoint is, part by part, and what of it is needed.

Measuring only: `check_checkpoint` judges. It reads the names and sizes of all files from one
listing, and of each snapshot the few kilobytes that say which SST files it needs. It changes
nothing, and can be run beside a job that writes.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

from include.checkpoint.checkpoint_files import (
    PARTS,
    CheckpointFile,
    Kind,
    Name,
    OperatorStores,
    Part,
    SnapshotContents,
    StoreId,
    StoreVersions,
    instant,
    left_over,
    list_checkpoint,
    newest_committed,
    newest_planned,
    read_operators,
    read_snapshots,
)
from include.lake.paths import Lake, LakeError


@dataclass(frozen=True, kw_only=True)
class StoreSize:
    """The figures of a state store; the fields are columns of `ops/checkpoint_sizes`.

    Garbage is what neither a start nor the repair of its snapshot needs: a compaction deletes
    it. Files of a version that no batch has committed count as neither.
    """

    operator: int
    partition: int
    store: str
    bytes: int
    files: int
    versions: int
    newest_version: int | None
    snapshots: int
    newest_snapshot: int | None
    replay_versions: int
    replay_bytes: int
    garbage_files: int
    garbage_bytes: int
    orphan_files: int
    orphan_bytes: int
    oldest_needed_at: datetime | None


@dataclass(frozen=True)
class Fault:
    """A file that is there, but not as it should be."""

    path: str
    reason: str


class StoreFiles:
    """The files of one store, by what they are for.

    `contents` has those of each snapshot, by its path; `start` is the version that the
    stream's next batch loads.
    """

    def __init__(
        self,
        store: StoreId,
        files: Sequence[CheckpointFile],
        contents: Mapping[str, SnapshotContents],
        start: int,
    ) -> None:
        self.store = store
        self._files = files
        self._contents = contents
        self._snapshots = self._by_version("snapshot")
        self._changelogs = self._by_version("changelog")
        self._shared = {
            base_name(file.path): file
            for file in files
            if file.name.kind == "shared" and not file.is_checksum
        }
        whole = {v for v, file in self._snapshots.items() if self._fault(file) is None}
        # Of a batch that changed nothing, too, a change log has bytes: none is a write cut off.
        logged = {v for v, file in self._changelogs.items() if file.bytes}
        self.versions = StoreVersions(whole, logged, start)

    def size(self) -> StoreSize:
        """The store's figures."""
        versions = self.versions
        replayed = [self._changelogs[version] for version in versions.replayed]
        garbage = [file for file in self._files if self._is_garbage(file)]
        return StoreSize(
            operator=self.store.operator,
            partition=self.store.partition,
            store=self.store.store,
            bytes=total_bytes(self._files),
            files=len(self._files),
            versions=len(versions.readable),
            newest_version=max(versions.readable, default=None),
            snapshots=len(versions.loadable_snapshots),
            newest_snapshot=versions.newest_snapshot or None,
            replay_versions=len(replayed),
            replay_bytes=total_bytes(replayed),
            garbage_files=len(garbage),
            garbage_bytes=total_bytes(garbage),
            orphan_files=len(self.orphans),
            orphan_bytes=total_bytes(self.orphans.values()),
            oldest_needed_at=self._oldest_needed_at(replayed),
        )

    @cached_property
    def orphans(self) -> dict[str, CheckpointFile]:
        """Files by path that belong to no version present.

        While the contents of one snapshot are not known, no SST file counts: it may be of that.
        """
        orphans = {file.path: file for file in left_over(self._files)}
        if not any(self._contents[file.path].fault for file in self._snapshots.values()):
            shared = (file for file in self._files if file.name.kind == "shared")
            orphans |= {f.path: f for f in shared if base_name(f.owner) not in self._newest_user}
        return orphans

    @property
    def missing(self) -> str | None:
        """The path of the first file without which the next batch cannot load its state."""
        if self.versions.missing is None:
            return None
        if_whole = replace(self.versions, snapshots=set(self._snapshots))
        if if_whole.missing is None:
            return self._snapshots[if_whole.newest_snapshot].path
        return f"{self.store.folder}/{if_whole.missing}.changelog"

    def damaged(self) -> list[Fault]:
        """The snapshots that Spark cannot load."""
        return [fault for fault in map(self._fault, self._snapshots.values()) if fault]

    def _by_version(self, kind: Kind) -> dict[int, CheckpointFile]:
        return {
            file.name.number: file
            for file in self._files
            if file.name.kind == kind and file.name.number is not None and not file.is_checksum
        }

    def _fault(self, snapshot: CheckpointFile) -> Fault | None:
        contents = self._contents[snapshot.path]
        if contents.fault:
            return Fault(snapshot.path, contents.fault)
        for name, size in contents.shared_files.items():
            shared = self._shared.get(name)
            if shared is None:
                return Fault(snapshot.path, f"it needs {name}, which is not there")
            if shared.bytes != size:
                return Fault(snapshot.path, f"it needs {size} bytes of {name}, not {shared.bytes}")
        return None

    @cached_property
    def _newest_user(self) -> dict[str, int]:
        """The newest snapshot that needs each shared file."""
        users: dict[str, int] = {}
        for version, snapshot in sorted(self._snapshots.items()):
            users |= dict.fromkeys(self._contents[snapshot.path].shared_files, version)
        return users

    def _is_garbage(self, file: CheckpointFile) -> bool:
        if file.path in self.orphans:
            return False
        version = file.name.number
        if file.name.kind == "shared":
            version = self._newest_user.get(base_name(file.owner))
        return version is not None and version < self.versions.repair_base

    def _oldest_needed_at(self, replayed: Sequence[CheckpointFile]) -> datetime | None:
        needed = list(replayed)
        snapshot = self._snapshots.get(self.versions.newest_snapshot)
        if snapshot is not None:
            needed.append(snapshot)
            needed += [self._shared[name] for name in self._contents[snapshot.path].shared_files]
        times = (file.written_ns for file in needed if file.written_ns is not None)
        return instant(min(times, default=None))


def total_bytes(files: Iterable[CheckpointFile]) -> int:
    """The bytes of `files`."""
    return sum(file.bytes for file in files)


def base_name(path: str) -> str:
    """The last part of `path`."""
    return path.rpartition("/")[2]


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
    orphan_bytes: int


@dataclass(frozen=True, kw_only=True)
class CheckpointSize:
    """A checkpoint as it was when it was listed. Paths in it begin below its folder.

    Without a file it has no parts.
    """

    stream: str
    generation: int
    checkpoint: str
    measured_at: datetime
    position: Position
    parts: tuple[PartSize, ...] = ()
    stores: tuple[StoreSize, ...] = ()
    missing: tuple[str, ...] = ()  # the next batch cannot start without them
    unreadable: tuple[Fault, ...] = ()  # nor with these
    damaged: tuple[Fault, ...] = ()  # snapshots that cannot be loaded
    left_over: tuple[str, ...] = ()  # files of no version present
    unknown: tuple[str, ...] = ()

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


Operators = Mapping[int, OperatorStores]
# With one of these in a checkpoint that has planned no batch, Spark starts none.
OF_BATCHES = ("offsets", "commits", "state", "state_metadata")


def measure_checkpoint(lake: Lake, stream: str, generation: int) -> CheckpointSize:
    """The size of the checkpoint of `stream`'s `generation`; of no parts when there is none.

    Raises LakeError when it cannot be listed.
    """
    checkpoint = lake.checkpoint(stream, generation)
    measured_at = datetime.now(UTC)
    try:
        # Before the listing: then all that these batches wrote is in it, whoever writes meanwhile.
        committed = newest_committed(lake, checkpoint)
        position = Position(planned=newest_planned(lake, checkpoint), committed=committed)
        files = list_checkpoint(lake, checkpoint)
    except (OSError, UnicodeDecodeError) as error:
        raise LakeError(
            f"the checkpoint {checkpoint} cannot be listed: {error}", code="unreadable_checkpoint"
        ) from error
    operators = read_operators(lake, checkpoint, files)
    files = [_as_known(file, operators) for file in files]
    stores = _stores(lake, checkpoint, files, operators=operators, position=position)
    orphans = _orphans(files, stores)
    faults = (Fault(o.path, o.fault) for o in operators.values() if o.fault)
    return CheckpointSize(
        stream=stream,
        generation=generation,
        checkpoint=checkpoint,
        measured_at=measured_at,
        position=position,
        parts=tuple(_parts(files, orphans)),
        stores=tuple(store.size() for store in stores),
        missing=(*_missing_logs(files, position), *_missing_state(stores, position)),
        unreadable=(*_damaged_logs(lake, checkpoint, files, position=position), *faults),
        damaged=tuple(fault for store in stores for fault in store.damaged()),
        left_over=tuple(sorted(orphans)),
        unknown=_paths(file for file in _unknown(files) if file.path not in orphans),
    )


def _as_known(file: CheckpointFile, operators: Operators) -> CheckpointFile:
    """`file`, as unknown when its store is none of its operator's."""
    store = file.name.store
    if store is None:
        return file
    operator = operators.get(store.operator)
    if operator is None or operator.fault:
        return file
    if store.partition < operator.partitions.get(store.store, 0):
        return file
    return file._replace(name=Name("unknown", "unknown", store))


def _stores(
    lake: Lake,
    checkpoint: str,
    files: Sequence[CheckpointFile],
    operators: Operators,
    position: Position,
) -> list[StoreFiles]:
    by_store: dict[StoreId, list[CheckpointFile]] = {id: [] for id in _expected(operators)}
    for file in files:
        if file.name.part == "state" and file.name.store is not None:
            by_store.setdefault(file.name.store, []).append(file)
    contents = read_snapshots(lake, checkpoint, _paths(_snapshots(files)))
    start = position.next_version
    return [StoreFiles(id, own, contents, start=start) for id, own in sorted(by_store.items())]


def _expected(operators: Operators) -> Iterator[StoreId]:
    for operator, stores in operators.items():
        for store, partitions in stores.partitions.items():
            yield from (StoreId(operator, partition, store) for partition in range(partitions))


def _orphans(
    files: Sequence[CheckpointFile], stores: Sequence[StoreFiles]
) -> dict[str, CheckpointFile]:
    orphans = {file.path: file for file in left_over(files)}
    for store in stores:
        orphans |= store.orphans
    return orphans


def _unknown(files: Sequence[CheckpointFile]) -> Iterator[CheckpointFile]:
    return (file for file in files if file.name.part == "unknown" and not file.is_checksum)


def _parts(files: Sequence[CheckpointFile], orphans: Collection[str]) -> Iterator[PartSize]:
    by_part = defaultdict(list)
    for file in files:
        by_part[file.name.part].append(file)
    for part in (part for part in PARTS if part in by_part):
        own_orphans = [file for file in by_part[part] if file.path in orphans]
        yield PartSize(
            part=part,
            bytes=total_bytes(by_part[part]),
            files=len(by_part[part]),
            orphan_files=len(own_orphans),
            orphan_bytes=total_bytes(own_orphans),
        )


def _needed_logs(position: Position) -> Iterator[str]:
    """The files that Spark reads before it knows where to go on."""
    planned, committed = position.planned, position.committed
    yield "metadata"
    if planned is not None:
        yield from (f"offsets/{batch}" for batch in (planned - 1, planned) if batch >= 0)
    if committed is not None:
        yield f"commits/{committed}"
        if planned is None or planned < committed:
            yield f"offsets/{committed}"


def _missing_logs(files: Sequence[CheckpointFile], position: Position) -> Iterator[str]:
    begun = position.planned is not None or position.committed is not None
    if not begun and any(f.name.part in OF_BATCHES and not f.is_checksum for f in files):
        yield "offsets/0"
    if begun:
        present = {file.path for file in files}
        yield from (path for path in _needed_logs(position) if path not in present)


def _damaged_logs(
    lake: Lake, checkpoint: str, files: Sequence[CheckpointFile], position: Position
) -> Iterator[Fault]:
    needed = set(_needed_logs(position))
    for file in files:
        if file.path not in needed:
            continue
        if not file.bytes:
            yield Fault(file.path, "it is empty: its writing was cut off")
        elif not _is_whole(lake, f"{checkpoint}/{file.path}"):
            yield Fault(file.path, "it is not what Spark writes: cut off, or damaged")


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


def _missing_state(stores: Sequence[StoreFiles], position: Position) -> tuple[str, ...]:
    if position.next_version and not stores:
        return ("state",)
    return tuple(store.missing for store in stores if store.missing)


def _snapshots(files: Sequence[CheckpointFile]) -> Iterator[CheckpointFile]:
    return (file for file in files if file.name.kind == "snapshot" and not file.is_checksum)


def _paths(files: Iterable[CheckpointFile]) -> tuple[str, ...]:
    return tuple(sorted(file.path for file in files))
