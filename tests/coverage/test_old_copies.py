"""Parts of a lake that are lost, damaged, or of different moments: named, and mended by a reseed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree, move, rmtree

import pytest

from include.coverage.give_up import give_up_reseed
from include.coverage.ledger import CoverageError
from include.coverage.rebuild import apply_rebuilt
from include.lake.generations import read_generations
from include.lake.paths import LakeError
from include.plans.reseed_options import ReseedOptions
from include.plans.reseed_plan import plan_reseed
from spark_jobs import reseed_stream
from spark_jobs.reseed_stream import finish_open_reseed, reseed
from tests.coverage.test_ledger import (
    KIND,
    KilledError,
    check,
    killed,
    land,
    names,
    run,
    some_hours,
)
from tests.simulator.actions import RESTORED
from tests.simulator.damage import empty_newest_commit, lose, parts_of
from tests.simulator.world import World, open_world

pytestmark = pytest.mark.slow


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as opened:
        yield opened


class Backup:
    """Parts of a lake as they were at a moment."""

    def __init__(self, world: World, folder: Path, *parts: str) -> None:
        self._places = parts_of(world, KIND)
        self._folder, self._parts = folder, parts
        for part in parts:
            copytree(self._places[part], folder / part)

    def put_back(self) -> None:
        for part in self._parts:
            rmtree(self._places[part])
            copytree(self._folder / part, self._places[part])


def refused(world: World, job: Callable[[World], object], match: str) -> None:
    with pytest.raises(LakeError, match=match):
        job(world)


def mend(world: World) -> None:
    """The command that all these messages name."""
    reseed(world.engine, world.lake, world.streams[KIND], ReseedOptions())
    assert names(world) == []
    check(world)
    land(world, 9)
    run(world)
    assert names(world) == []
    check(world)


def finish(world: World) -> None:
    finish_open_reseed(world.engine, world.lake, world.streams[KIND])


def test_a_reseed_that_is_done_is_not_done_again_for_an_old_copy_of_generations(
    world, tmp_path, monkeypatch
):
    some_hours(world)
    with monkeypatch.context() as patched:
        patched.setattr(reseed_stream, "_switch", killed)
        with pytest.raises(KilledError):
            reseed(world.engine, world.lake, world.streams[KIND], ReseedOptions())
    backup = Backup(world, tmp_path, "ops/generations")
    for hour in (5, 6):
        land(world, hour)
        run(world)
    backup.put_back()
    assert read_generations(world.lake, world.streams[KIND].name).intent is not None
    assert names(world) == ["table_changed"]
    for job in (run, finish):
        refused(world, job, "takes for one that has not begun")
    mend(world)


def test_an_older_table_is_noticed_though_the_ledger_is_lost(world, tmp_path):
    some_hours(world, hours=2)
    backup = Backup(world, tmp_path, "table")
    land(world, 3)
    run(world)
    backup.put_back()
    lose(world, KIND, "ops/coverage")
    assert names(world) == ["table_changed"]
    refused(world, run, "older")
    mend(world)


@pytest.mark.parametrize(
    "parts",
    [
        ("table", "ops/tables"),
        ("table", "ops/tables", "ops/coverage"),
        ("table", "ops/tables", "ops/coverage", "ops/batches", "ops/generations", "ops/savepoints"),
    ],
)
def test_parts_that_are_older_than_the_rest_are_noticed(world, tmp_path, parts):
    some_hours(world, hours=2)
    backup = Backup(world, tmp_path, *parts)
    for hour in (3, 4):
        land(world, hour)
        run(world)
    backup.put_back()
    assert names(world) == ["table_changed"]
    refused(world, run, "./stateful reseed sim_counts --apply")
    mend(world)


def test_a_table_that_is_newer_than_all_that_is_known_of_it_is_noticed(world, tmp_path):
    """All was put back but the table, which a reseed had made since, and live gone on with."""
    some_hours(world, hours=2)
    stream = world.streams[KIND]
    reseed(world.engine, world.lake, stream, ReseedOptions())
    run(world)
    backup = Backup(world, tmp_path, *(part for part in RESTORED if part != "table"))
    reseed(world.engine, world.lake, stream, ReseedOptions(buckets=3))
    for hour in (3, 4):
        land(world, hour)
        run(world)
    backup.put_back()
    assert names(world) == ["table_changed"]
    refused(world, run, "does not know")
    # Not under the number of the generation that the table knows: it would take what live
    # writes for written.
    mend(world)
    assert read_generations(world.lake, stream.name).current["generation"] == 4


def test_a_rebuilt_ledger_makes_nothing_right_that_is_not_ours(world):
    some_hours(world)
    empty_newest_commit(world, KIND)
    with pytest.raises(CoverageError, match="is empty, as after a power cut"):
        apply_rebuilt(world.lake, world.streams[KIND])
    mend(world)


def test_a_damaged_checkpoint_does_not_stop_its_own_repair(world):
    some_hours(world)
    offsets = sorted((parts_of(world, KIND)["checkpoint"] / "1" / "offsets").glob("[0-9]*"))
    offsets[-1].write_bytes(b"")
    assert plan_reseed(world.lake, world.streams[KIND], ReseedOptions()).text()
    mend(world)


def test_a_table_whose_log_is_no_log_is_moved_away_and_made_anew(world, tmp_path):
    some_hours(world)
    table = parts_of(world, KIND)["table"]
    newest = sorted((table / "_delta_log").glob("*.json"))[-1]
    newest.write_text("no json")
    assert names(world) == ["table_changed"]
    refused(world, run, "cannot be read")
    with pytest.raises(LakeError, match="set-aside tables/sim_counts --apply"):
        plan_reseed(world.lake, world.streams[KIND], ReseedOptions())
    move(table, tmp_path / "away")
    mend(world)


def test_giving_up_takes_back_all_reseeds_that_are_open(world, monkeypatch):
    some_hours(world)
    stream = world.streams[KIND]
    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(reseed_stream, "replayed", killed)
            with pytest.raises(KilledError):
                reseed(world.engine, world.lake, stream, ReseedOptions())
    assert give_up_reseed(world.lake, stream) == 3
    assert read_generations(world.lake, stream.name).intent is None
    land(world, 5)
    run(world)
    check(world)
    assert names(world) == []
