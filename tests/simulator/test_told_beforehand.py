"""What plans say, against what then happens."""

from datetime import timedelta

import pytest

from include.fold.instants import instant_of
from include.plans.reseed_options import ReseedOptions
from include.plans.reseed_plan import plan_reseed
from spark_jobs.reseed_stream import reseed
from tests.simulator.steps import land, run
from tests.simulator.world import MINUTE_US, World


def lived(world: World, kind: str) -> None:
    for _ in range(3):
        land(world, [("a", 0, 1), ("b", MINUTE_US, 2)])
        run(world, kind)


def some_wait(world: World) -> ReseedOptions:
    land(world, [("a", 0, 1), ("b", MINUTE_US, 2)])
    return ReseedOptions()


def earlier(world: World) -> ReseedOptions:
    return ReseedOptions(until=instant_of(world.now_us) - timedelta(minutes=50))


@pytest.mark.parametrize(
    ("asked", "unchanged"),
    [(lambda world: ReseedOptions(), True), (some_wait, False), (earlier, False)],
)
def test_of_an_update_table_it_is_told_whether_a_row_changes(world, asked, unchanged):
    kind = "counts_per_key"
    lived(world, kind)
    before, stream, options = world.table(kind), world.streams[kind], asked(world)
    told = plan_reseed(world.lake, stream, options).text()
    reseed(world.engine, world.lake, stream, options)
    assert ("no row of it changes" in told) == (world.table(kind) == before) == unchanged
