"""A product table whose log has lost more than a clean-up takes."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from include.care.set_aside import apply_set_aside, plan_set_aside
from include.coverage.table_coverage import table_coverage
from include.plans.reseed_plan import ReseedOptions
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.refused import refused_until
from tests.simulator.damage import clean_log
from tests.simulator.operations import Operations
from tests.simulator.world import open_world


@pytest.fixture(params=[True, False], ids=["quick", "plain"])
def do(request: pytest.FixtureRequest):
    operations = Operations("silences", opened=open_world(quick=request.param))
    yield operations
    operations.close()


def test_a_table_that_has_a_checkpoint_in_place_of_its_newest_commit_is_made_anew(do):
    """No clean-up does so; and it can be read, but not be written to."""
    do.land_in_time("a", [1], 1)
    do.pass_time(30)
    do.clock_row()
    do.run(None)
    engine, lake, stream = do.world.engine, do.world.lake, do.stream
    path = Path(lake.table(stream.name))
    clean_log(path)
    for commit in path.glob("_delta_log/*.json"):
        commit.unlink()
    with refused_until(f"reseed {stream.name}"):
        drain(engine, lake, stream)
    with refused_until(f"set-aside tables/{stream.name} --apply"):
        reseed(engine, lake, stream, ReseedOptions())
    part = f"tables/{stream.name}"
    apply_set_aside(lake, plan_set_aside(lake, [part], datetime.now(UTC)))
    reseed(engine, lake, stream, ReseedOptions())
    assert table_coverage(lake, stream).is_right
