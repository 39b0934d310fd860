"""A checkpoint that somebody has put in the place of another, with as many batches of the same bronze."""

import shutil
from collections.abc import Iterator

import pytest

from include.checkpoint.offsets import query_id
from include.lake.generations import read_generations
from include.lake.ops import update_ops
from include.lake.paths import LakeError
from include.plans.reseed_options import ReseedOptions
from spark_jobs.reseed_stream import reseed
from spark_jobs.write_savepoint import savepoint
from tests.simulator.steps import MINUTE_US, land, live_table, run
from tests.simulator.world import World, open_world

ROWS = [("a", 5 * MINUTE_US, 2), ("b", 4 * MINUTE_US, 1), ("a", 3 * MINUTE_US, 2)]
KIND, OTHER = "counts", "counts_per_key"


@pytest.fixture
def world() -> Iterator[World]:
    """Two streams of one source, with states of the same fields."""
    with open_world(quick=False) as made:
        made.deploy(OTHER, "c")  # even values count twice
        for _ in range(2):
            land(made, ROWS)
            run(made, KIND)
            run(made, OTHER)
        yield made


def checkpoint(world: World, kind: str) -> str:
    return world.lake.checkpoint(world.streams[kind].name, 1)


def put_other_checkpoint(world: World) -> None:
    shutil.rmtree(checkpoint(world, KIND))
    shutil.copytree(checkpoint(world, OTHER), checkpoint(world, KIND))
    land(world, ROWS)


def recorded_query(world: World) -> str | None:
    row = read_generations(world.lake, world.streams[KIND].name).pinned(1)
    return row["query_id"]  # type: ignore[no-any-return]


def forget_query(world: World) -> None:
    """As where a first run was killed, or was an earlier release's."""
    row = {"stream": world.streams[KIND].name, "generation": 1, "query_id": None}
    update_ops(world.lake, "generations", ("stream", "generation"), [row])


def test_a_run_stops_at_another_streams_checkpoint_and_a_reseed_mends_it(world: World):
    stream = world.streams[KIND]
    put_other_checkpoint(world)
    with pytest.raises(LakeError, match=rf"another query .* `./stateful reseed {stream.name} --a"):
        run(world, KIND)
    reseed(world.engine, world.lake, stream, ReseedOptions())
    run(world, KIND)
    assert world.table(KIND) == live_table(world, KIND)


def test_its_state_is_not_written_down_as_a_savepoint(world: World):
    put_other_checkpoint(world)
    with pytest.raises(LakeError, match="another query"):
        savepoint(world.engine, world.lake, world.streams[KIND])


def test_a_checkpoint_of_which_the_query_is_not_recorded_is_believed_and_recorded(world: World):
    forget_query(world)
    land(world, ROWS)
    run(world, KIND)
    assert recorded_query(world) == query_id(world.lake, checkpoint(world, KIND)) is not None
    assert world.table(KIND) == live_table(world, KIND)
