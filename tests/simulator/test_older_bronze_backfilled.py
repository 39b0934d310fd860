"""An older bronze with seals as old: runs stop, a backfill does not, and what it lost is called right."""

from datetime import timedelta

import pytest

from include.coverage.table_coverage import table_coverage
from include.fold.instants import instant_of
from include.lake.paths import LakeError
from include.landing.ingest import ingest
from include.plans.reseed_options import ReseedOptions
from include.settings import SettingsError
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from tests.simulator.older_bronze import back_up, put_back, take
from tests.simulator.older_bronze import world as world
from tests.simulator.steps import run
from tests.simulator.world import MINUTE_US, START_US, World

FILES = ([0, 10, 20, 40], [45, 50, 58], [65, 80, 90], [150])


def at(minutes: int):
    return instant_of(START_US + minutes * MINUTE_US)


def test_what_is_called_right_is_right(world: World):
    stream = world.streams["counts"]
    world.pass_time(timedelta(hours=3))
    take(world, 0, "a", FILES[0])
    run(world, "counts")
    back_up(world)
    for number in (1, 2, 3):
        take(world, number, "a", FILES[number])
        run(world, "counts")
    whole = world.table("counts")
    put_back(world)
    with pytest.raises(LakeError, match="it is an older copy"):
        run(world, "counts")
    try:
        recompute(world.engine, world.lake, stream, at(0), at(60))
    except (LakeError, SettingsError):
        return  # as it should
    world.pass_time(timedelta(minutes=1))
    ingest(world.lake, world.source)
    run(world, "counts")
    recompute(world.engine, world.lake, stream, at(60), at(100))
    reseed(world.engine, world.lake, stream, ReseedOptions())
    run(world, "counts")
    judged = table_coverage(world.lake, stream)
    assert judged.distrust or judged.coverage.wrong or world.table("counts") == whole
