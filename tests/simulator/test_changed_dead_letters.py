"""`dead_letters/<stream>` that somebody else has written to: a finding says so, and a reseed mends it."""

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.stream.reseed_plan import ReseedOptions
from include.stream.stream_status import stream_status
from spark_jobs.reseed_stream import reseed
from tests.refused import refused_until
from tests.simulator.damage import append_again
from tests.simulator.steps import land, run, some_rows
from tests.simulator.stream_files import KINDS
from tests.simulator.world import World, open_world


def appended(table: str) -> None:
    assert append_again(Path(table))


def deleted(table: str) -> None:
    DeltaTable(table).delete("number = 0")


def updated(table: str) -> None:
    DeltaTable(table).update(updates={"key": "'other'"})


def restored(table: str) -> None:
    DeltaTable(table).restore(DeltaTable(table).version() - 1)


def lost(table: str) -> None:
    shutil.rmtree(table)


def older(table: str) -> None:
    lost(table)
    shutil.copytree(older_of(table), table)


def older_of(table: str) -> Path:
    """A copy of it, outside the lake."""
    return Path(table).parents[2] / "older"


@contextmanager
def made(kind: str) -> Iterator[World]:
    """Rows that the function fails for; the newest of them were made by a reseed."""
    with open_world() as world:
        world.configure(kind, on_error="dead_letter")
        world.deploy(kind, "e")
        rng = random.Random(5)
        for _ in range(2):
            land(world, [*some_rows(rng, 6), ("a", 0, 3)], minutes=60)
            run(world, kind)
        shutil.copytree(
            dead_letters := world.lake.dead_letters(f"sim_{kind}"), older_of(dead_letters)
        )
        land(world, [("b", 90 * 60_000_000, 3)], minutes=60)
        anew(world, kind)
        yield world


def anew(world: World, kind: str) -> None:
    reseed(world.engine, world.lake, world.streams[kind], ReseedOptions())
    run(world, kind)


def found(world: World, kind: str) -> list[str]:
    return [each.finding for each in stream_status(world.lake, world.streams[kind]).findings]


@pytest.mark.parametrize("harm", [appended, deleted, updated, restored, lost, older])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_dead_letters_that_others_have_changed_are_named_and_made_anew(kind, harm):
    with made(kind) as world:
        table, before = world.lake.dead_letters(f"sim_{kind}"), world.dead_letters(kind)
        assert found(world, kind) == []
        harm(table)
        assert world.dead_letters(kind) != before
        assert found(world, kind) == ["table_changed"]
        with refused_until(f"reseed sim_{kind} --apply"):
            run(world, kind)
        anew(world, kind)
        assert world.dead_letters(kind) == before
        assert found(world, kind) == []


def test_dead_letters_that_are_lost_are_not_missed_by_a_function_that_fails_for_none():
    with made("counts") as world:
        lost(world.lake.dead_letters("sim_counts"))
        world.deploy("counts", "a")
        for _ in range(2):
            reseed(world.engine, world.lake, world.streams["counts"], ReseedOptions())
            assert found(world, "counts") == []
        assert not Path(world.lake.dead_letters("sim_counts")).exists()
        world.deploy("counts", "e")
        anew(world, "counts")
        assert found(world, "counts") == []
        assert world.dead_letters("counts")
