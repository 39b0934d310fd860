"""Intervals that one job recomputes together: each has its own rows, its own record, its own Dag run."""

import random
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from include.checkpoint.committed_batch import settled_until
from include.fold.admission import instant_of
from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.lake.stream_result import recompute_extra
from include.plans.plan_backfill import MOST, following_ends, take_joined
from include.plans.reseed_plan import ReseedOptions
from spark_jobs.recompute_interval import recompute_all
from spark_jobs.reseed_stream import reseed
from tests.simulator.steps import all_rows, land, live_table, run, some_rows, table_of
from tests.simulator.test_changed_bronze import updated
from tests.simulator.world import World, open_world
from tests.simulator.writes import killed_at, writes_of

HOUR = timedelta(hours=1)
HOUR_US = 3_600_000_000


def late_world(world: World) -> list[datetime]:
    """Four eight hours of rows with late ones among them; the edges of four intervals of six hours."""
    rng = random.Random(5)
    for _ in range(4):
        land(world, some_rows(rng), minutes=8 * 60)
        run(world, "counts")
    land(world, [("a", ago * HOUR_US, 1) for ago in (27, 20, 14, 9)])
    run(world, "counts")
    first = instant_of((world.now_us - 30 * HOUR_US) // HOUR_US * HOUR_US)
    return [first + number * 6 * HOUR for number in range(5)]


def right_between(world: World, edges: list[datetime]) -> Counter:
    """The table of live, but for what a recompute of all between the edges makes right."""
    within = range(*(int(at.timestamp() * 1e6) for at in (edges[0], edges[-1])))
    mixed = Counter(e for e in live_table(world, "counts").elements() if e.at_us not in within)
    whole = table_of(world, "counts", all_rows(world))
    return mixed + Counter(e for e in whole.elements() if e.at_us in within)


def backfill(world: World, edges: list[datetime]) -> int:
    """The Dag runs of a backfill, one after the other, as the Dag takes its steps; the jobs it took."""
    stream, jobs = world.streams["counts"], 0
    for number, (start, until) in enumerate(pairwise(edges)):
        if not take_joined(world.lake, stream, start, until, f"d{number}"):
            recompute_all(world.engine, world.lake, stream, edges[number:], f"d{number}")
            jobs += 1
    return jobs


def test_one_job_does_all_and_each_run_has_what_its_interval_became(world):
    edges = late_world(world)
    before = world.table("counts")
    assert backfill(world, edges) == 1
    assert world.table("counts") == right_between(world, edges) != before
    for number, start in enumerate(edges[:-1]):
        extra = recompute_extra(world.lake, world.streams["counts"].name, f"d{number}")
        assert extra["interval"][0] == start.isoformat()
    changed = [row["rows_added"] + row["rows_removed"] for row in intervals(world)]
    assert len(changed) == 4
    assert all(changed)
    # Only the first has more to read than its own rows.
    assert all(row["base_until"] == row["start"] for row in intervals(world)[1:])


def intervals(world: World) -> list[dict]:
    rows = read_ops(world.lake, "runs", {"job": "recompute_interval"}).to_pylist()
    return sorted(rows, key=lambda row: row["start"])


def test_what_is_wrong_again_by_the_time_of_its_run_is_not_taken(world):
    edges = late_world(world)
    stream = world.streams["counts"]
    recompute_all(world.engine, world.lake, stream, edges, "d0")
    ago_us = world.now_us - int((edges[2] + HOUR).timestamp() * 1e6)
    land(world, [("a", ago_us + 30 * 60 * 1_000_000, 1)])
    assert take_joined(world.lake, stream, edges[0], edges[1], "d0")
    assert take_joined(world.lake, stream, edges[1], edges[2], "d1")
    assert not take_joined(world.lake, stream, edges[2], edges[3], "d2")
    assert backfill(world, edges) == 1
    assert world.table("counts") == right_between(world, edges)


def test_nothing_is_taken_while_bronze_is_not_what_was_ingested(world):
    """The job is left to say so: by what others have made of bronze, nothing can be called right."""
    edges = late_world(world)
    recompute_all(world.engine, world.lake, world.streams["counts"], edges, "d0")
    updated(world.lake.bronze("sent"))
    assert not take_joined(world.lake, world.streams["counts"], edges[1], edges[2], "d1")


def test_what_a_rewind_has_taken_back_since_is_not_taken(world):
    edges = late_world(world)
    stream = world.streams["counts"]
    backfill(world, edges)
    reseed(world.engine, world.lake, stream, ReseedOptions(until=edges[2]))
    taken = [
        take_joined(world.lake, stream, start, until, f"d{number}")
        for number, (start, until) in enumerate(pairwise(edges))
    ]
    assert taken == [True, True, False, False]


def test_another_backfill_does_not_take_what_belongs_to_a_run(world):
    edges = late_world(world)
    assert backfill(world, edges) == 1
    assert not take_joined(world.lake, world.streams["counts"], edges[0], edges[1], "other")


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_job_that_is_killed_leaves_whole_intervals_and_the_runs_do_the_rest(part):
    with open_world() as world:
        edges = late_world(world)
        writes = writes_of(lambda: backfill(world, edges)).count
    with open_world() as world:
        edges = late_world(world)
        assert killed_at(max(1, int(writes * part)), lambda: backfill(world, edges))
        backfill(world, edges)
        assert world.table("counts") == right_between(world, edges)
        told = [row["dag_run_id"] for row in intervals(world)]
        assert {f"d{number}" for number in range(4)} <= set(told)


def test_those_go_along_that_wait_next_to_each_other_and_are_settled(world):
    late_world(world)
    stream = replace(world.streams["counts"], schedule="0 * * * *")
    settled = settled_until(world.lake, read_generations(world.lake, stream.name))
    until = settled.replace(minute=0, second=0, microsecond=0) - 5 * HOUR
    waiting = {until + number * HOUR for number in range(30)}

    def ends(**settings: object) -> list[datetime]:
        changed = replace(stream, **settings)
        return following_ends(world.lake, changed, until, lambda date: date in waiting)

    assert ends() == [until + number * HOUR for number in range(1, 6)]  # up to what is settled
    assert ends(timeout=12 * timedelta(minutes=1)) == [until + HOUR, until + 2 * HOUR]
    assert ends(timeout=timedelta(minutes=1)) == []
    waiting.remove(until + 2 * HOUR)
    assert ends() == [until + HOUR, until + 2 * HOUR]
    waiting.remove(until)
    assert ends() == []
    assert MOST > 5


def test_an_update_stream_takes_none_along(world):
    kind = next(kind for kind in world.streams if kind not in ("counts", "silences"))
    land(world, some_rows(random.Random(1)))
    run(world, kind)
    long_ago = instant_of(world.now_us) - 100 * HOUR
    assert following_ends(world.lake, world.streams[kind], long_ago, lambda date: True) == []
