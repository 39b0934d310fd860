"""A savepoint that a generation has to begin with is damaged."""

from pathlib import Path

import pytest

from include.plans.reseed_plan import ReseedOptions
from include.plans.stream_status import stream_status
from spark_jobs.reseed_stream import reseed
from tests.refused import refused_until
from tests.simulator.steps import land, live_table, run
from tests.simulator.world import MINUTE_US, World

HOUR_US = 60 * MINUTE_US


def damage_savepoints(world: World) -> None:
    files = list(Path(world.lake.root, "savepoints").rglob("*.parquet"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:-9])


def anew(world: World) -> None:
    reseed(world.engine, world.lake, world.streams["counts"], ReseedOptions())


def assert_stops_until_it_is_made_anew(world: World) -> None:
    damage_savepoints(world)
    land(world, [("a", 0, 1)], minutes=90)
    before = world.table("counts")
    with refused_until("reseed sim_counts --apply"):
        run(world, "counts")
    assert world.table("counts") == before
    anew(world)
    run(world, "counts")
    assert world.table("counts") == live_table(world, "counts")
    assert stream_status(world.lake, world.streams["counts"]).is_right


@pytest.fixture
def reseedable(world: World) -> World:
    for key in "aba":
        land(world, [(key, 0, 1), ("c", HOUR_US, 1)], minutes=90)
        run(world, "counts")
    return world


def test_the_seed_of_a_generation_that_has_not_run(reseedable: World):
    anew(reseedable)
    assert_stops_until_it_is_made_anew(reseedable)
