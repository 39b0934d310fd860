"""What a stream has read of bronze, where the clean-up of its log has taken that version away; and a
product table whose log has lost more than a clean-up takes."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from include.care.set_aside import apply_set_aside, plan_set_aside
from include.coverage.table_coverage import table_coverage
from include.plans.reseed_plan import ReseedOptions
from include.savepoints.manifest import savepoints_of
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from spark_jobs.write_savepoint import savepoint
from tests.refused import refused, refused_until
from tests.simulator.damage import clean_log
from tests.simulator.operations import Operations
from tests.simulator.world import open_world


@pytest.fixture(params=[True, False], ids=["quick", "plain"])
def do(request: pytest.FixtureRequest):
    operations = Operations("silences", opened=open_world(quick=request.param))
    yield operations
    operations.close()


def beyond_a_cleaned_log(do: Operations, last: Callable[[], None]) -> None:
    """The stream has read versions 1 to 3; `last` makes one more, and the log has only that."""
    for _ in range(2):
        do.land_in_time("a", [1], 1)
        do.pass_time(30)
    do.clock_row()
    do.run(None)
    last()
    clean_log(Path(do.world.lake.bronze(do.stream.source)))
    do.pass_time(1)


def test_a_savepoint_is_refused_until_a_run_has_read_what_came_since(do):
    beyond_a_cleaned_log(do, lambda: do.land_in_time("a", [1], 1))
    engine, lake, stream = do.world.engine, do.world.lake, do.stream
    before = len(savepoints_of(lake, stream.name))
    with refused("cleaned_up_version"):
        savepoint(engine, lake, stream)
    assert len(savepoints_of(lake, stream.name)) == before
    drain(engine, lake, stream)
    savepoint(engine, lake, stream)
    assert len(savepoints_of(lake, stream.name)) > before


def test_what_was_only_rewritten_since_stops_neither_a_run_nor_a_savepoint(do):
    beyond_a_cleaned_log(do, lambda: do.optimize("bronze"))
    engine, lake, stream = do.world.engine, do.world.lake, do.stream
    drain(engine, lake, stream)
    before = len(savepoints_of(lake, stream.name))
    savepoint(engine, lake, stream)
    assert len(savepoints_of(lake, stream.name)) == before + 1


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
