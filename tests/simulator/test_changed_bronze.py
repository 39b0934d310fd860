"""Bronze that somebody else has written to: each job of a stream says so, and makes nothing of it."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.maintain.check_checkpoint import check_checkpoint
from include.stream.open_stream import has_waiting_rows
from include.stream.stream_status import stream_status
from tests.refused import refused_until
from tests.simulator.damage import append_again
from tests.simulator.steps import JOBS, all_rows, land, run, some_rows, table_of
from tests.simulator.world import World, open_world

KIND = "counts"


def appended(bronze: str) -> None:
    assert append_again(Path(bronze))


def deleted(bronze: str) -> None:
    _open_to_changes(bronze).delete("key = 'b'")


def updated(bronze: str) -> None:
    _open_to_changes(bronze).update(predicate="key = 'b'", updates={"key": "'other'"})


def _open_to_changes(bronze: str) -> DeltaTable:
    table = DeltaTable(bronze)
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    return DeltaTable(bronze)


@pytest.fixture
def world() -> Iterator[World]:
    """Three commits, which the stream has read, late rows and all."""
    with open_world() as made:
        rng = random.Random(5)
        for _ in range(3):
            land(made, some_rows(rng), minutes=60)
            run(made, KIND)
        JOBS["rebuild"](made, KIND)
        run(made, KIND)
        yield made


def expected(world: World):
    return table_of(world, KIND, all_rows(world))


def found(world: World) -> list[str]:
    findings = check_checkpoint(world.lake, world.streams[KIND]).findings
    return [each.finding for each in findings if each.severity == "error"]


@pytest.mark.parametrize("harm", [appended, deleted, updated])
def test_no_job_builds_on_bronze_that_others_have_changed(world, harm, tmp_path):
    bronze = world.lake.bronze("sent")
    shutil.copytree(bronze, tmp_path / "copy")
    table = world.table(KIND)
    assert not has_waiting_rows(world.lake, world.streams[KIND])
    harm(bronze)
    assert has_waiting_rows(world.lake, world.streams[KIND])  # a run fails, and says so
    assert found(world) == ["bronze_changed"]
    assert not stream_status(world.lake, world.streams[KIND]).is_right
    for name, job in JOBS.items():
        with refused_until("ingest sent --from-scratch --apply"):
            job(world, KIND)
        assert world.table(KIND) == table == expected(world), name
    _put_back(bronze, tmp_path / "copy")
    assert found(world) == []
    land(world, [("a", 0, 1), ("b", 1, 2)], minutes=60)
    for job in JOBS.values():
        job(world, KIND)
        assert world.table(KIND) == expected(world)


def _put_back(bronze: str, copy: Path) -> None:
    shutil.rmtree(bronze)
    shutil.copytree(copy, bronze)
