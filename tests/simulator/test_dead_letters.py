"""Dead letters are those of the fold that the record names, whoever dies or changes them."""

import random
import shutil
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

from include.fold.admission import instant_of
from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.stream.open_stream import open_stream
from include.stream.rebuild_plan import RebuildOptions, plan_rebuild
from include.stream.stream_status import stream_status
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.restate_interval import restate
from tests.simulator import oracle
from tests.simulator.steps import (
    APPEND,
    DELAY_US,
    all_rows,
    land,
    live_table,
    run,
    some_rows,
    table_of,
)
from tests.simulator.stream_files import KINDS
from tests.simulator.world import START_US, World, open_world
from tests.simulator.writes import killed_before_each

FOR_EVER_US = 2**62
DAY_US = 24 * 3_600_000_000


def begin(world: World, kind: str) -> None:
    """A stream that keeps dead letters, as variant e does."""
    world.configure(kind, on_error="dead_letter")
    world.deploy(kind, "e")


def failing(world: World, kind: str, rows: list[oracle.Landed]) -> Counter[tuple[str, int]]:
    until_us = oracle.until_us(world.commits, DELAY_US)
    return Counter(oracle.folded(kind, "e", rows, until_us).dead_letters)


def within(calls: Counter[tuple[str, int]], from_us: int, until_us: int) -> dict[object, int]:
    return {call: n for call, n in calls.items() if from_us <= call[1] < until_us}


def check_live(world: World, kind: str) -> None:
    in_time = oracle.in_time(oracle.stamped(world.commits), DELAY_US)
    assert world.table(kind) == live_table(world, kind)
    assert world.dead_letters(kind) == failing(world, kind, in_time)


@pytest.mark.parametrize("kind", KINDS)
def test_live_a_restate_and_a_rebuild_keep_what_the_oracle_says(kind):
    rng = random.Random(5)
    with open_world() as world:
        begin(world, kind)
        lake, stream = world.lake, world.streams[kind]
        for _ in range(4):
            land(world, some_rows(rng), minutes=8 * 60)
            land(world, some_rows(rng), minutes=10)  # some of them late
            run(world, kind)
            check_live(world, kind)
        live = world.dead_letters(kind)
        every = failing(world, kind, all_rows(world))
        assert 0 < live.total() < every.total()
        counted = sum(row["rows_dead_lettered"] for row in read_ops(lake, "batches").to_pylist())
        assert counted == live.total()

        if kind in APPEND:
            from_us, until_us = START_US + DAY_US // 2, START_US + DAY_US
            interval = instant_of(from_us), instant_of(until_us)
            restate(world.engine, lake, stream, *interval)
            now = world.dead_letters(kind)
            assert within(now, from_us, until_us) == within(every, from_us, until_us)
            assert within(now, 0, from_us) == within(live, 0, from_us)
            assert within(now, until_us, FOR_EVER_US) == within(live, until_us, FOR_EVER_US)
            assert now != live

        rebuild(world.engine, lake, stream, RebuildOptions())
        assert world.dead_letters(kind) == every
        run(world, kind)
        assert world.dead_letters(kind) == every
        assert world.table(kind) == table_of(world, kind, all_rows(world))

        world.deploy(kind, "a")  # mended
        rebuild(world.engine, lake, stream, RebuildOptions(full_refresh=True))
        assert world.dead_letters(kind) == Counter()


@pytest.mark.slow
def test_what_a_run_failed_for_is_found_whatever_write_it_was_killed_before():
    """The run that follows passes over a batch that the dead one has written."""

    @contextmanager
    def made():
        with open_world() as world:
            begin(world, "counts")
            land(world, [("a", 0, 1)])
            run(world, "counts")
            land(world, [("a", 0, 3)])
            land(world, [("a", 0, 1)])
            yield world

    for world in killed_before_each(made, lambda world: run(world, "counts"), every=3):
        run(world, "counts")
        found = read_ops(world.lake, "findings", {"finding": "rows_dead_lettered"})
        assert {row["count"] for row in found.to_pylist()} == {1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_begins_to_keep_dead_letters_keeps_its_rows_and_its_savepoints(kind):
    with open_world() as world:
        world.deploy(kind, "e")
        for _ in range(2):
            land(world, [("a", 0, 1), ("b", 0, 2)], minutes=24 * 60)
            run(world, kind)
        land(world, [("a", 0, 3)])
        land(world, [("b", 0, 1)])
        with pytest.raises(Exception, match="ValueError"):
            run(world, kind)
        stream = world.configure(kind, on_error="dead_letter")
        run(world, kind)
        check_live(world, kind)
        identity = open_stream(world.lake, stream).identity
        row = read_generations(world.lake, stream.name).current
        assert (row["code"], row["code_changed_at_us"]) == (identity.code, None)
        judged = stream_status(world.lake, stream)
        assert judged.table_status.wrong == ()
        assert judged.table_status.live_is_right
        assert read_ops(world.lake, "findings", {"finding": "code_changed"}).num_rows == 0
        assert (
            plan_rebuild(open_stream(world.lake, stream), RebuildOptions()).starting.savepoint
            is not None
        )


def test_dead_letters_that_are_lost_are_not_missed_by_a_function_that_fails_for_none(world):
    def rebuilt() -> list[str]:
        rebuild(world.engine, world.lake, world.streams["counts"], RebuildOptions())
        return [
            each.finding for each in stream_status(world.lake, world.streams["counts"]).findings
        ]

    begin(world, "counts")
    for _ in range(2):
        land(world, [("a", 0, 3), ("b", 0, 1)], minutes=60)
        run(world, "counts")
    land(world, [("b", 90 * 60_000_000, 3)], minutes=60)
    assert rebuilt() == []
    path = Path(world.lake.dead_letters("sim_counts"))
    shutil.rmtree(path)
    world.deploy("counts", "a")
    assert [rebuilt(), rebuilt()] == [[], []]
    assert not path.exists()
    world.deploy("counts", "e")
    assert rebuilt() == []
    assert world.dead_letters("counts")
