"""A checkpoint's folder in the formats of Spark: its logs of offsets and commits, and the state.

The logs and names are Spark's, as far as `include` reads them. What a state file holds is not:
it has all of its partition's state, pickled, so that no older file is needed to load it.
"""

import json
import pickle
import time
import zipfile
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from include.spark.conf import RETAINED_BATCHES
from tests.simulator.writes import write_point

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
SNAPSHOT_METADATA = 'v1\n{"sstFiles":[],"numKeys":-1,"numInternalKeys":-1}'


class CheckpointError(Exception):
    """The query cannot go on from this checkpoint: Spark would say the same in more words."""


class Offset(NamedTuple):
    """Delta's offset: all files before this one of this version are read."""

    version: int
    index: int = -1  # the last file read of that version


class Planned(NamedTuple):
    """A batch in the log of offsets."""

    batch_id: int
    watermark_ms: int
    end: Offset
    table_id: str


class CheckpointLog:
    """Reads and writes the folder of one query."""

    def __init__(self, folder: str, partitions: int = 0) -> None:
        self.folder = Path(folder)
        self.partitions = partitions

    # The logs

    def newest(self, log: str) -> int | None:
        folder = self.folder / log
        names = (path.name for path in folder.iterdir()) if folder.exists() else ()
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def begin(self) -> None:
        """The query's id. A checkpoint with batches and none is no checkpoint any more."""
        if (self.folder / "metadata").exists():
            return
        if self.newest("offsets") is not None or self.newest("commits") is not None:
            raise CheckpointError(f"{self.folder}/metadata is missing")
        self._write("metadata", json.dumps({"id": str(uuid4())}))

    def plan(self, planned: Planned) -> None:
        settings = {
            "batchWatermarkMs": planned.watermark_ms,
            "batchTimestampMs": time.time_ns() // 1_000_000,  # in two lives no plan is the same
            "conf": {SHUFFLE_PARTITIONS: str(self.partitions)},
        }
        offset = {
            "sourceVersion": 1,
            "reservoirId": planned.table_id,
            "reservoirVersion": planned.end.version,
            "index": planned.end.index,
            "isStartingVersion": False,
        }
        text = "\n".join(["v1", json.dumps(settings), json.dumps(offset)])
        self._write(f"offsets/{planned.batch_id}", text)

    def planned(self, batch_id: int) -> Planned:
        _, settings, offset = self._read(f"offsets/{batch_id}").split("\n")
        source = json.loads(offset)
        end = Offset(source["reservoirVersion"], source["index"])
        watermark_ms = json.loads(settings)["batchWatermarkMs"]
        return Planned(batch_id, watermark_ms, end, source["reservoirId"])

    def commit(self, batch_id: int, next_watermark_ms: int) -> None:
        self._write(
            f"commits/{batch_id}", "v1\n" + json.dumps({"nextBatchWatermarkMs": next_watermark_ms})
        )

    def next_watermark_ms(self, batch_id: int) -> int:
        return int(
            json.loads(self._read(f"commits/{batch_id}").split("\n")[1])["nextBatchWatermarkMs"]
        )

    def purge(self, batch_id: int, settings: dict[str, str]) -> None:
        """Delete the logs of batches that are not retained. As Spark: after a commit."""
        retain = int(settings.get(RETAINED_BATCHES, "10"))
        for path in (
            path for log in ("offsets", "commits") for path in (self.folder / log).iterdir()
        ):
            if path.name.isdecimal() and int(path.name) <= batch_id - retain:
                path.unlink()

    def _read(self, name: str) -> str:
        try:
            return (self.folder / name).read_text()
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.folder}/{name} is missing") from error

    def _write(self, name: str, text: str) -> None:
        write_point(f"{self.folder.parent.name}/{self.folder.name}/{name}")
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    # The state: batch N turns version N into N + 1

    def write_state(self, version: int, parts: list[Any], snapshot: bool) -> None:
        """All partitions of a version, one after the other, as tasks do."""
        self._describe_state(version - 1)
        for number, part in enumerate(parts):
            folder = self._part(number)
            write_point(f"{self.folder.parent.name}/{self.folder.name}/state/{number}/{version}")
            folder.mkdir(parents=True, exist_ok=True)
            content = pickle.dumps(part)
            (folder / f"{version}.changelog").write_bytes(content)
            if snapshot:
                with zipfile.ZipFile(folder / f"{version}.zip", "w") as archive:
                    archive.writestr("metadata", SNAPSHOT_METADATA)
                    archive.writestr("state", content)

    def _describe_state(self, batch_id: int) -> None:
        path = self.folder / "state/0/_metadata/v2" / str(batch_id)
        if batch_id and path.parent.exists():
            return
        stores = [{"storeName": "default", "numPartitions": self.partitions}]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"v2\n{json.dumps({'stateStoreInfo': stores})}")

    def read_state(self, version: int) -> list[Any]:
        """All partitions of a version; nothing of version 0."""
        if version == 0:
            return []
        numbers = sorted(int(p.name) for p in (self.folder / "state/0").glob("[0-9]*"))
        if self.partitions and len(numbers) != self.partitions:
            raise CheckpointError(f"{self.folder}/state has {len(numbers)} partitions")
        return [self._read_part(number, version) for number in numbers]

    def _read_part(self, number: int, version: int) -> Any:
        folder = self._part(number)
        snapshot, changelog = folder / f"{version}.zip", folder / f"{version}.changelog"
        try:
            if changelog.exists():
                return pickle.loads(changelog.read_bytes())
            with zipfile.ZipFile(snapshot) as archive:
                return pickle.loads(archive.read("state"))
        except FileNotFoundError as error:
            raise CheckpointError(f"{changelog} does not exist") from error
        except (EOFError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{folder} is damaged at version {version}: {error}") from error

    def delete_old_versions(self, newest: int, retain: int) -> None:
        """Delete old versions as Spark's maintenance does, which runs under a compaction's settings alone."""
        for number in range(self.partitions):
            for path in self._part(number).iterdir():
                if path.stem.isdecimal() and int(path.stem) < newest - retain + 1:
                    path.unlink()

    def _part(self, number: int) -> Path:
        return self.folder / "state/0" / str(number)
