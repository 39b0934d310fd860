"""The function that makes a stream's keys changes, and with it the state, which is to be mapped."""

import pytest

from include.lake.delta_log import delta_table
from include.lake.errors import SettingsError
from include.lake.generations import read_generations
from include.stream.reseed_plan import ReseedOptions
from include.stream.stream_status import stream_status
from spark_jobs.engines.replay import MigrationError
from spark_jobs.reseed_stream import reseed
from tests.simulator.steps import land, run
from tests.simulator.world import World

BY_NAME = '''
"""Rows of each name"""
from typing import NamedTuple
from include.fold.definition import flat_map_groups_with_state
class Landed(NamedTuple):
    key: str
    event_time_us: int
class Known(NamedTuple):
    n: int
class Row(NamedTuple):
    name: str
    n: int
def name(event: Landed) -> str:
    return event.key
def fold(key, events, state):
    for _ in events:
        n = state.get.n + 1 if state.exists else 1
        state.update(Known(n))
        yield Row(key, n)
def migrate_state(old):
    return Known(old["n"])
FOLD = flat_map_groups_with_state(
    fold, key=name, event=Landed, state=Known, output=Row, output_mode="append")
COMMENTS = {"name": "Whose", "n": "How many"}
'''
ANOTHER_STATE = BY_NAME.replace("    n: int\nclass Row", "    n: int\n    m: int = 0\nclass Row")
ANOTHER_KEY = ANOTHER_STATE.replace("return event.key", "return event.key.lower()")
MAPPED = ReseedOptions(from_state=True)


def lived(world: World) -> None:
    world.put_file("counts", BY_NAME)
    for _ in range(4):
        land(world, [("A", 0, 1), ("a", 0, 1)], 60)
    run(world, "counts")


def written(world: World) -> tuple[object, int | None]:
    """The version of the table, and the stream's generation."""
    lake = world.lake
    return delta_table(lake.table("sim_counts")).version(), read_generations(
        lake, "sim_counts"
    ).number


@pytest.mark.parametrize("is_reseeded", [False, True])
def test_states_of_other_keys_are_not_mapped(world: World, is_reseeded: bool):
    lived(world)
    if is_reseeded:
        reseed(world.engine, world.lake, world.streams["counts"], ReseedOptions())
        run(world, "counts")
    world.put_file("counts", ANOTHER_KEY)
    with pytest.raises(SettingsError):
        reseed(world.engine, world.lake, world.streams["counts"], MAPPED)


def test_states_of_the_same_keys_are_mapped_once_the_mapping_is_right(world: World):
    lived(world)
    reseed(world.engine, world.lake, world.streams["counts"], ReseedOptions())
    run(world, "counts")
    before = written(world)
    world.put_file("counts", ANOTHER_STATE.replace('old["n"]', 'old["amount"]'))
    with pytest.raises(MigrationError):
        reseed(world.engine, world.lake, world.streams["counts"], MAPPED)
    assert written(world) == before
    world.put_file("counts", ANOTHER_STATE)
    reseed(world.engine, world.lake, world.streams["counts"], MAPPED)
    land(world, [("A", 0, 1), ("a", 0, 1)], 60)
    run(world, "counts")
    assert stream_status(world.lake, world.streams["counts"]).coverage.live_is_right
