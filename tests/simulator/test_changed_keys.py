"""A function makes a stream's keys, and its code changes: nobody knows whether the keys are the same."""

from include.stream.reseed_plan import ReseedOptions
from include.stream.stream_status import stream_status
from spark_jobs.reseed_stream import reseed
from tests.refused import refused
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


def test_states_are_not_mapped_and_a_reseed_makes_those_of_the_new_keys(world: World):
    world.put_file("counts", BY_NAME)
    for _ in range(4):
        land(world, [("A", 0, 1), ("a", 0, 1)], 60)
    run(world, "counts")
    world.put_file("counts", ANOTHER_KEY)
    stream, anew = world.streams["counts"], "./stateful reseed sim_counts --recompute --apply"
    with refused("not_migratable", subject="sim_counts", command=anew):
        reseed(world.engine, world.lake, stream, ReseedOptions(from_state=True))
    reseed(world.engine, world.lake, stream, ReseedOptions(recompute=True))
    run(world, "counts")
    status = stream_status(world.lake, stream)
    assert status.is_right
    assert status.live_is_right
