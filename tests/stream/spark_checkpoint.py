"""A checkpoint as Spark writes it, and as Spark loads it: in plain Python, for tests.

Written after Spark's RocksDBFileManager: batches, snapshots that share SST files, batches that
are killed and repeated, the deletion of old versions. `SparkStore.load` is the oracle: it loads a
version step by step. It looks at nothing of `include`.
"""

import json
import random
import uuid
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

CRC = b"crc\0\0\0\x02\0"


class CannotLoadError(Exception):
    """A version that Spark cannot load."""


def write(path: Path, content: bytes) -> None:
    """Write a file and its checksum, as Hadoop does on a local disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    chunks = (content[at : at + 512] for at in range(0, len(content), 512))
    checksum_of(path).write_bytes(CRC + b"".join(crc32(chunk).to_bytes(4) for chunk in chunks))


def remove(path: Path) -> None:
    path.unlink()
    checksum_of(path).unlink(missing_ok=True)


def checksum_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


@dataclass
class SparkStore:
    """One partition of the one state store of a query."""

    folder: Path
    rng: random.Random
    ssts: dict[str, int] = field(default_factory=dict)  # of the newest snapshot

    def write_version(self, version: int, snapshot: bool, changelog: bool) -> None:
        """Write the commit of a task; without a change log it must be a snapshot."""
        if changelog or not snapshot:
            write(self.changelog(version), bytes(self.rng.randrange(47, 3000)))
        if snapshot:
            self._write_snapshot(version)

    def _write_snapshot(self, version: int) -> None:
        retained = [name for name in self.ssts if self.rng.random() < 0.6]
        self.ssts = {name: self.ssts[name] for name in retained}
        self.upload_ssts(self.rng.randrange(3))
        self._zip(version, self.ssts)

    def upload_ssts(self, count: int) -> None:
        for number in range(count):
            name = f"{number:06}-{uuid.UUID(int=self.rng.getrandbits(128))}.sst"
            size = self.rng.randrange(1, 5000)
            write(self.folder / "SSTs" / name, bytes(size))
            self.ssts[name] = size

    def _zip(self, version: int, ssts: dict[str, int]) -> None:
        files = [
            {"localFileName": name[:6] + ".sst", "dfsSstFileName": name, "sizeBytes": size}
            for name, size in ssts.items()
        ]
        metadata = json.dumps({"sstFiles": files, "numKeys": -1, "numInternalKeys": -1})
        path = self.snapshot(version)
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("MANIFEST-000005", bytes(self.rng.randrange(100, 400)))
            archive.writestr("metadata", f"v1\n{metadata}")
        write(path, path.read_bytes())

    def snapshot(self, version: int) -> Path:
        return self.folder / f"{version}.zip"

    def changelog(self, version: int) -> Path:
        return self.folder / f"{version}.changelog"

    def snapshots(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("*.zip"))

    def ssts_of(self, version: int) -> dict[str, int]:
        with zipfile.ZipFile(self.snapshot(version)) as archive:
            metadata = json.loads(archive.read("metadata").split(b"\n", 1)[1])
        return {file["dfsSstFileName"]: file["sizeBytes"] for file in metadata["sstFiles"]}

    def load(self, version: int) -> list[int]:
        """Load `version`, from the newest whole snapshot on; return the change logs that it took."""
        for base in (*reversed([v for v in self.snapshots() if v <= version]), 0):
            if self._is_whole(base):
                return self._replay(base, version)
        raise CannotLoadError(f"no snapshot of {version} can be loaded")

    def _is_whole(self, version: int) -> bool:
        if version == 0:
            return True
        try:
            ssts = self.ssts_of(version)
        except (zipfile.BadZipFile, KeyError):
            return False
        files = {self.folder / "SSTs" / name: size for name, size in ssts.items()}
        return all(path.exists() and path.stat().st_size == size for path, size in files.items())

    def _replay(self, base: int, version: int) -> list[int]:
        logs = list(range(base + 1, version + 1))
        for log in logs:
            if not self.changelog(log).exists():
                raise CannotLoadError(f"{log}.changelog does not exist")
        return logs

    def delete_old_versions(self, retain: int) -> None:
        """Spark's maintenance: all before the newest snapshot that `retain` versions need."""
        snapshots = self.snapshots()
        wanted = [v for v in snapshots if v <= max(snapshots, default=0) - retain + 1]
        oldest = max(wanted, default=0)
        if not any(version < oldest for version in snapshots):
            return
        retained = {name for v in snapshots if v >= oldest for name in self.ssts_of(v)}
        gone = {name for v in snapshots if v < oldest for name in self.ssts_of(v)} - retained
        for name in gone:
            remove(self.folder / "SSTs" / name)
        for path in [*self.folder.glob("*.zip"), *self.folder.glob("*.changelog")]:
            if int(path.stem) < oldest:
                remove(path)


class SparkCheckpoint:
    """The checkpoint of a query with one stateful operator."""

    def __init__(self, root: Path, partitions: int, seed: int = 0) -> None:
        self.root = root
        self.partitions = partitions
        folders = [root / "state" / "0" / str(number) for number in range(partitions)]
        self.stores = [
            SparkStore(folder, random.Random(seed + n)) for n, folder in enumerate(folders)
        ]
        self.planned = -1
        self.committed = -1

    @property
    def start(self) -> int:
        """The version that the next batch loads."""
        return self.planned if self.planned > self.committed else self.committed + 1

    def plan(self) -> None:
        """Begin the next batch, or the one that was not finished again."""
        if self.planned < 0:
            write(self.root / "metadata", b'{"id":"7a3c0f52-9f0e-4c53-8a11-2f6f0f2f7a3c"}')
        if self.planned == self.committed:
            self.planned += 1
            write(self.root / "offsets" / str(self.planned), b"v1\n{}\n{}")

    def write_states(
        self, count: int | None = None, snapshot: bool = False, changelog: bool = True
    ) -> None:
        """Write the commits of the planned batch's tasks, in the first `count` partitions."""
        self._write_metadata()
        for store in self.stores[:count]:
            store.write_version(self.planned + 1, snapshot, changelog)

    def _write_metadata(self) -> None:
        path = self.root / "state/0/_metadata/v2" / str(self.planned)
        stores = [{"storeName": "default", "numPartitions": self.partitions}]
        write(path, f"v2\n{json.dumps({'stateStoreInfo': stores})}".encode())

    def commit(self) -> None:
        write(self.root / "commits" / str(self.planned), b'v1\n{"nextBatchWatermarkMs":0}')
        self.committed = self.planned

    def batch(self, snapshot: bool = False, changelog: bool = True) -> None:
        """One whole batch."""
        self.plan()
        self.write_states(snapshot=snapshot, changelog=changelog)
        self.commit()

    def purge_logs(self, retain: int) -> None:
        """Spark's deletion of the logs of old batches."""
        for log in ("offsets", "commits"):
            for path in (self.root / log).glob("[0-9]*"):
                if int(path.name) <= self.committed - retain:
                    remove(path)
