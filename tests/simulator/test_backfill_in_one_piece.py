"""A backfill's first run restates all intervals whose runs wait, in one piece; theirs find it right."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise

import pytest

from include.fold.admission import instant_of
from include.lake.generations import complete_until
from include.lake.ops import replaced_by
from include.stream import restate_plan
from include.stream.open_stream import open_stream
from include.stream.rebuild_plan import RebuildOptions
from include.stream.restate_plan import MOST, has_nothing_to_change, last_waiting_end
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.restate_interval import restate
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
    """The table of live, but for what a restatement of all between the edges makes right."""
    within = range(*(int(at.timestamp() * 1e6) for at in (edges[0], edges[-1])))
    mixed = Counter(e for e in live_table(world, "counts").elements() if e.at_us not in within)
    whole = table_of(world, "counts", all_rows(world))
    return mixed + Counter(e for e in whole.elements() if e.at_us in within)


def backfill(world: World, edges: list[datetime]) -> int:
    """The Dag runs of a backfill, one after the other, as the Dag takes its steps; the jobs it took."""
    stream, jobs = world.streams["counts"], 0
    for start, until in pairwise(edges):
        if not has_nothing_to_change(world.lake, stream, start, until=until):
            restate(world.engine, world.lake, stream, start, edges[-1])
            jobs += 1
    return jobs


def found_right(world: World, edges: list[datetime]) -> list[bool]:
    stream = world.streams["counts"]
    return [
        has_nothing_to_change(world.lake, stream, start, until=until)
        for start, until in pairwise(edges)
    ]


def test_one_job_does_all_in_one_commit_and_what_is_right_starts_none(world):
    edges = late_world(world)
    before = world.table("counts")
    assert found_right(world, edges) == [False] * 4
    assert backfill(world, edges) == 1
    assert world.table("counts") == right_between(world, edges) != before
    (restated,) = replaced_by(world.lake, world.streams["counts"].name)
    assert (restated["start"], restated["until"]) == (edges[0], edges[-1])
    assert backfill(world, edges) == 0


def later_than_now(world: World, edges: list[datetime]) -> None:
    """A row comes that is late in the third interval."""
    ago_us = world.now_us - int((edges[2] + HOUR).timestamp() * 1e6)
    land(world, [("a", ago_us + 30 * 60 * 1_000_000, 1)])


def changed_by_others(world: World, edges: list[datetime]) -> None:
    """The job is left to say so: by what others have made of bronze, nothing can be called right."""
    updated(world.lake.bronze("sent"))


def rewound(world: World, edges: list[datetime]) -> None:
    rebuild(world.engine, world.lake, world.streams["counts"], RebuildOptions(until=edges[2]))


@pytest.mark.parametrize(
    ("happened", "right"),
    [
        (later_than_now, [True, True, False, False]),
        (changed_by_others, [False] * 4),
        (rewound, [True, True, False, False]),
    ],
)
def test_what_is_wrong_again_by_the_time_of_its_run_is_done_once_more(
    world: World, happened: Callable[[World, list[datetime]], None], right: list[bool]
):
    edges = late_world(world)
    backfill(world, edges)
    happened(world, edges)
    assert found_right(world, edges) == right


@pytest.mark.parametrize("part", [0.3, 0.7])
def test_a_job_that_is_killed_changes_all_or_nothing_and_the_runs_do_the_rest(part):
    with open_world() as world:
        edges = late_world(world)
        writes = writes_of(lambda: backfill(world, edges)).count
    with open_world() as world:
        edges = late_world(world)
        assert killed_at(max(1, int(writes * part)), lambda: backfill(world, edges))
        backfill(world, edges)
        assert world.table("counts") == right_between(world, edges)


def test_those_go_along_that_wait_next_to_each_other_and_are_complete(world, monkeypatch):
    late_world(world)
    stream = replace(world.streams["counts"], schedule="0 * * * *")
    complete = complete_until(world.lake, stream.name)
    until = complete.replace(minute=0, second=0, microsecond=0) - 5 * HOUR
    waiting = {until + number * HOUR for number in range(30)}

    def end(**settings: object) -> datetime:
        opened = open_stream(world.lake, replace(stream, **settings))
        taken = partial(last_waiting_end, opened, until - HOUR, until)
        return taken(lambda dates: len(waiting & set(dates)))

    assert end() == until + 5 * HOUR  # up to what is complete
    monkeypatch.setattr(restate_plan, "seconds_for", lambda lake, name, *rows: 60.0)
    assert end() == until + 5 * HOUR
    assert end(timeout=timedelta(minutes=1)) == until
    waiting.remove(until + 2 * HOUR)
    assert end() == until + 2 * HOUR
    waiting.remove(until)
    assert end() == until
    assert MOST > 5


def test_an_update_table_has_nothing_that_an_interval_changes(world):
    kind = next(kind for kind in world.streams if kind not in ("counts", "silences"))
    land(world, some_rows(random.Random(1)))
    run(world, kind)
    long_ago = instant_of(world.now_us) - 100 * HOUR
    assert has_nothing_to_change(world.lake, world.streams[kind], long_ago, until=long_ago + HOUR)
