"""A backfill right after a deploy: live has not run by the new code yet."""

from include.fold.admission import instant_of
from include.lake.stream_result import complete_until
from include.stream.plan_recompute import why_not_promote
from spark_jobs.recompute_interval import recompute
from tests.simulator.steps import land, run
from tests.simulator.world import START_US, World


def test_its_last_run_promotes(world: World):
    """As docs/backfills.md says: where late rows, or other code, are not in the live state."""
    stream = world.streams["counts"]
    for _ in range(5):
        land(world, [("a", 0, 1)], 60)
    run(world, "counts")
    start, settled = (
        instant_of(START_US),
        complete_until(world.lake, stream.name),
    )
    assert settled is not None
    world.deploy("counts", "b")
    recompute(world.engine, world.lake, stream, start, settled)
    assert why_not_promote(world.lake, stream, start, lambda dates: 0) is None
