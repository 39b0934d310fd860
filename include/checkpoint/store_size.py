"""One state store of one partition: what its files are for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from include.checkpoint.checkpoint_files import CheckpointFile, Kind, StoreId, instant, left_over
from include.checkpoint.snapshot_contents import SnapshotContents
from include.checkpoint.store_versions import StoreVersions


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
