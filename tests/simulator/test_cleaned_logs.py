"""What a stream has read of bronze, where the clean-up of its log has taken that version away."""

from collections.abc import Callable
from pathlib import Path

import pytest

from include.lake.paths import LakeError
from include.savepoints.manifest import savepoints_of
from spark_jobs.run_stream import drain
from spark_jobs.write_savepoint import savepoint
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
    with pytest.raises(LakeError, match=r"has taken version 3 away.*run the stream"):
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
