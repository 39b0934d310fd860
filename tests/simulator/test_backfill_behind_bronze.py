"""A backfill of what live has settled, over a bronze that has not come that far (again)."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from include.fold.admission import instant_of
from include.lake.paths import LakeError
from include.settings import SettingsError
from spark_jobs.recompute_interval import recompute
from tests.simulator.damage import begin_anew
from tests.simulator.steps import land, run
from tests.simulator.world import SOURCE, START_US, World, open_world

HOUR_US = 3_600_000_000


@pytest.fixture
def world() -> Iterator[World]:
    with open_world(quick=False) as made:
        yield made


@pytest.mark.parametrize("kind", ["older", "anew"])
def test_what_bronze_of_now_has_not_settled_is_not_backfilled(world: World, kind: str):
    """Rows that are to come would be in time there: nothing would call the interval wrong."""
    bronze = Path(world.lake.bronze(SOURCE.name))
    land(world, [("a", 0, 1)])
    run(world, "counts")
    shutil.copytree(bronze, bronze.with_name("copy"))
    land(world, [("a", 0, 1)])
    land(world, [("a", 0, 1)])
    run(world, "counts")
    before = world.table("counts")
    if kind == "older":
        shutil.rmtree(bronze)
        shutil.move(bronze.with_name("copy"), bronze)
    else:
        begin_anew(world)
        # Ingested anew, and cut off behind the first commit.
        land(world, [("a", 0, 1)], minutes=-60)
    with pytest.raises(LakeError):
        run(world, "counts")
    edges = instant_of(START_US), instant_of(START_US + HOUR_US + 1)
    with pytest.raises((LakeError, SettingsError)):
        recompute(world.engine, world.lake, world.streams["counts"], *edges)
    assert world.table("counts") == before
