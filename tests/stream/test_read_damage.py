"""A damaged savepoint is found, and deleted; one that cannot be read just now stays."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from shutil import rmtree
from types import SimpleNamespace

import pyarrow as pa
import pytest

from include.fold.arrow_values import state_schema
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.stream.manifest import Savepoint, SavepointError, refuse_damaged, savepoints_of
from include.stream_definition import load_definition
from spark_jobs.replay_bronze import plan_with_sound_start
from spark_jobs.write_savepoint import write_savepoint
from tests.late_lakes import START_US, small
from tests.refused import refused
from tests.simulator.local_engine import LocalEngine
from tests.written_savepoint import MANIFEST

STREAM = small("user_counts")
FOLD = load_definition(STREAM).fold


def write(lake: Lake, keys: int, until_us: int = START_US) -> Savepoint:
    rows = [
        {"key": f"u{n}", "state": {"total_count": n}, "changed_at_us": START_US + n}
        for n in range(keys)
    ]
    states = pa.Table.from_pylist(rows, state_schema(FOLD))
    return write_savepoint(LocalEngine(), lake, states, FOLD, until_us, **MANIFEST)


@pytest.fixture
def savepoint(lake: Lake) -> Savepoint:
    return write(lake, 500)


def folder(lake: Lake, savepoint: Savepoint) -> Path:
    return Path(lake.savepoint(STREAM.name, savepoint.savepoint_id))


def test_a_folder_without_a_manifest_is_none_and_goes_with_the_next_one(lake, savepoint):
    (folder(lake, savepoint) / "manifest.json").unlink()
    assert savepoints_of(lake, STREAM.name) == []
    later = write(lake, 1, START_US + 1)
    assert lake.folders(lake.savepoints(STREAM.name)) == [later.savepoint_id]


def each_file(path: Path) -> Iterator[Path]:
    return (file for file in sorted(path.iterdir()) if file.is_file())


def gone(path: Path) -> None:
    next(path.glob("*.parquet")).unlink()


def cut(path: Path) -> None:
    file = next(path.glob("*.parquet"))
    os.truncate(file, file.stat().st_size // 2)


@pytest.mark.parametrize("damage", [gone, cut])
def test_a_damaged_savepoint_is_deleted(lake, savepoint, damage):
    damage(folder(lake, savepoint))
    with refused("unreadable_savepoint", subject=savepoint.savepoint_id):
        refuse_damaged(lake, savepoint)
    planned = plan_with_sound_start(lake, "r1", lambda: plan_from(lake))
    assert planned.starting.savepoint is None
    assert lake.folders(lake.savepoints(STREAM.name)) == []
    (finding,) = read_ops(lake, "findings", {"finding": "savepoint_damaged"}).to_pylist()
    assert savepoint.savepoint_id in finding["detail"]


def test_no_bit_of_its_files_flips_unseen(lake, savepoint):
    random = Random(1)
    for file in each_file(folder(lake, savepoint)):
        whole = file.read_bytes()
        for _ in range(200):
            at, bit = random.randrange(len(whole)), random.randrange(8)
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            for found in savepoints_of(lake, STREAM.name):
                with pytest.raises(SavepointError):
                    refuse_damaged(lake, found)
        file.write_bytes(whole)
    assert savepoints_of(lake, STREAM.name) == [savepoint]


def test_a_lost_folder_is_no_savepoint(lake, savepoint):
    rmtree(folder(lake, savepoint))
    assert savepoints_of(lake, STREAM.name) == []
    with refused("unreadable_savepoint", subject=savepoint.savepoint_id):
        refuse_damaged(lake, savepoint)


def test_a_savepoint_that_cannot_be_read_just_now_stays(lake, savepoint, monkeypatch):
    def unreachable(*_: object) -> None:
        raise ConnectionError("connection refused")

    monkeypatch.setattr("spark_jobs.replay_bronze.refuse_damaged", unreachable)
    with pytest.raises(ConnectionError):
        plan_with_sound_start(lake, "r1", lambda: plan_from(lake))
    assert savepoints_of(lake, STREAM.name) == [savepoint]
    assert not lake.is_delta_table(lake.ops("findings"))


def plan_from(lake: Lake) -> SimpleNamespace:
    """A plan that starts with the newest savepoint there is."""
    known = savepoints_of(lake, STREAM.name)
    return SimpleNamespace(starting=SimpleNamespace(savepoint=known[-1] if known else None))
