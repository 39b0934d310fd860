"""The steps of tests in a world, and its tables by the oracle."""

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

from include.fold.admission import instant_of
from include.fold.definition import KeyedFold
from include.stream.rebuild_plan import RebuildOptions
from include.stream_definition import load_definition
from spark_jobs.compact_state import compact
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.restate_interval import restate
from spark_jobs.run_stream import drain
from spark_jobs.write_savepoint import savepoint
from tests.simulator import oracle
from tests.simulator.oracle import Landed
from tests.simulator.world import DELAY, MINUTE_US, START_US, World

DELAY_US = DELAY // timedelta(microseconds=1)
APPEND = ("counts", "silences")
START, HOUR = instant_of(START_US), timedelta(hours=1)
JOBS: dict[str, Callable[[World, str], object]] = {  # of a world and a kind of stream
    "run": lambda w, kind: drain(w.engine, w.lake, w.streams[kind]),
    "rebuild": lambda w, kind: rebuild(
        w.engine, w.lake, w.streams[kind], RebuildOptions(full_refresh=True)
    ),
    "restate": lambda w, kind: restate(w.engine, w.lake, w.streams[kind], START, START + HOUR),
    "compact": lambda w, kind: compact(w.engine, w.lake, w.streams[kind]),
    "savepoint": lambda w, kind: savepoint(w.engine, w.lake, w.streams[kind]),
}


def land(world: World, rows: list[tuple[str, int, int]], minutes: int = 30) -> None:
    world.pass_time(timedelta(minutes=minutes))
    world.ingest([Landed(key, world.now_us - ago_us, value) for key, ago_us, value in rows])


def some_rows(rng: random.Random, count: int = 12) -> list[tuple[str, int, int]]:
    return [
        (rng.choice("abc"), rng.choice([0, 1, 5, 20, 40, 70]) * MINUTE_US, rng.randrange(4))
        for _ in range(count)
    ]


def run(world: World, kind: str) -> None:
    drain(world.engine, world.lake, world.streams[kind])


def lived(world: World, kind: str) -> None:
    for _ in range(3):
        land(world, [("a", 0, 1), ("b", MINUTE_US, 2)])
        run(world, kind)


def fold_of(world: World, kind: str) -> KeyedFold:
    return load_definition(world.streams[kind]).fold


def live_table(world: World, kind: str) -> Counter[oracle.Emitted]:
    """The table by the oracle, when live alone has written it."""
    rows = oracle.in_time(oracle.stamped(world.commits), DELAY_US)
    return table_of(world, kind, rows)


def table_of(world: World, kind: str, rows: list[Landed]) -> Counter[oracle.Emitted]:
    until_us = oracle.until_us(world.commits, DELAY_US)
    variant = world.deployed[kind]
    if kind in APPEND:
        return Counter(oracle.outputs(kind, variant, rows, until_us))
    return Counter(oracle.projection(kind, variant, rows, until_us).values())


def all_rows(world: World) -> list[Landed]:
    return [row for commit in world.commits for row in commit.rows]
