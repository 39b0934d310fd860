"""Parts of a lake that are lost, or put back from an older copy."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from include.ingest.ingest_log import Ingestion
from include.lake.errors import OF_SOURCE
from tests.simulator.world import World


def parts_of(world: World, kind: str) -> dict[str, Path]:
    """The folders of a lake that can come to harm, by name."""
    root, name = Path(world.lake.root), world.streams[kind].name
    return {
        "table": root / "tables" / name,
        "dead_letters": root / "dead_letters" / name,
        "checkpoint": root / "checkpoints" / name,
        "savepoints": root / "savepoints" / name,
        "bronze": root / "bronze" / world.streams[kind].source,
        "ops": root / "ops",
    }


class Copies:
    """Copies of parts of a lake, as somebody's backup has them."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._folder = folder
        self.made: dict[str, Path | None] = {}

    def take(self, kind: str) -> None:
        """Copy each part as it is now, in the place of the copies of before."""
        for part, source in parts_of(self._world, kind).items():
            target = self._folder / part
            shutil.rmtree(target, ignore_errors=True)
            self.made[part] = shutil.copytree(source, target) if source.exists() else None

    def put_back(self, kind: str, *parts: str) -> None:
        """The copies in the place of what is there now; what there was none of then is gone."""
        for part in parts:
            target = parts_of(self._world, kind)[part]
            shutil.rmtree(target, ignore_errors=True)
            if copy := self.made[part]:
                shutil.copytree(copy, target)


def lose(world: World, kind: str, part: str) -> None:
    """It is gone."""
    shutil.rmtree(parts_of(world, kind)[part], ignore_errors=True)


def ingest_from_scratch(world: World) -> None:
    """The source's tables and its log were moved aside, and are made again."""
    for part in OF_SOURCE:
        shutil.rmtree(f"{world.lake.root}/{part}/{world.source.name}")
    Ingestion(world.lake, world.source)


def empty_newest_commit(world: World, kind: str) -> None:
    """A power cut: the newest commit of the table is a file without bytes."""
    log = parts_of(world, kind)["table"] / "_delta_log"
    commits = sorted(path for path in log.glob("*.json") if path.stem.isdecimal())
    if commits:
        commits[-1].write_bytes(b"")


def append_again(table: Path) -> bool:
    """Somebody else's commit: a row, of bronze an event, once more; whether there is one."""
    if not DeltaTable.is_deltatable(str(table)):
        return False
    rows = DeltaTable(str(table)).to_pyarrow_table()
    if "is_heartbeat" in rows.column_names:
        rows = rows.filter(pc.invert(rows["is_heartbeat"]))
    rows = rows.slice(0, 1)
    if rows.num_rows:
        plain = pa.schema([field.remove_metadata() for field in rows.schema])
        write_deltalake(str(table), rows.cast(plain), mode="append")
    return rows.num_rows > 0


def clean_log(table: Path) -> None:
    """Clean a table's log as Delta does in time: a checkpoint, and no commit from before it."""
    opened = DeltaTable(str(table))
    opened.create_checkpoint()
    for commit in (table / "_delta_log").glob("*.json"):
        if commit.stem.isdecimal() and int(commit.stem) < opened.version():
            commit.unlink()
        elif commit.stem.isdecimal():
            os.utime(commit, (0, 0))  # so that nobody goes on with the log that he has read
