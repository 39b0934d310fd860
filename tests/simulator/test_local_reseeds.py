"""Reseeds and recomputes without a JVM come to what the oracle says, killed before any write."""

import random
from collections import Counter
from datetime import timedelta

import pytest

from include.fold.admission import micros_of
from include.lake.ops import read_ops
from include.plans.reseed_plan import ReseedOptions
from spark_jobs.reseed_stream import reseed
from tests.refused import refused_until
from tests.simulator import oracle
from tests.simulator.steps import (
    APPEND,
    DELAY_US,
    all_rows,
    land,
    run,
    some_rows,
    table_of,
)
from tests.simulator.stream_files import KINDS
from tests.simulator.world import MINUTE_US, World, open_world
from tests.simulator.writes import killed_at, writes_of


@pytest.mark.parametrize("variant", ["b", "c", "d"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_reseed_to_new_code_makes_all_of_the_table_anew(world, kind, variant):
    rng = random.Random(7)
    for _ in range(3):
        land(world, some_rows(rng))
        run(world, kind)
    world.deploy(kind, variant)
    reseed(world.engine, world.lake, world.streams[kind], ReseedOptions(recompute=True))
    run(world, kind)
    assert world.table(kind) == table_of(world, kind, all_rows(world))


@pytest.mark.parametrize("kind", KINDS)
def test_a_reseed_from_older_states_maps_them_and_replays_what_came_after(world, kind):
    rng = random.Random(13)
    for _ in range(3):
        land(world, some_rows(rng))
        run(world, kind)
    # Late rows in, which no savepoint may lack.
    reseed(world.engine, world.lake, world.streams[kind], ReseedOptions())
    run(world, kind)
    land(world, [("a", 0, 3), ("b", MINUTE_US, 2), ("new", 0, 1)], minutes=60)
    run(world, kind)
    world.deploy(kind, "d")
    reseed(world.engine, world.lake, world.streams[kind], ReseedOptions(from_state=True))
    run(world, kind)
    intervals = read_ops(world.lake, "intervals").to_pylist()
    row = max(intervals, key=lambda row: row["recomputed_at"])
    base_us, rows = micros_of(row["base_until"]), all_rows(world)
    before = oracle.folded(kind, "a", rows, base_us)
    after = oracle.folded(
        kind,
        "d",
        [row for row in rows if row.time_us >= base_us],
        oracle.until_us(world.commits, DELAY_US),
        oracle.mapped(before),
    )
    assert before.keys
    if kind in APPEND:
        assert world.table(kind) == Counter(before.outputs + after.outputs)
    else:
        assert world.table(kind) == Counter(oracle.rows_of_keys("d", after).values())


@pytest.mark.parametrize(
    "setting",
    [{"buckets": 5}, {"state_partitions": 3}, {"watermark_delay": timedelta(hours=2)}],
    ids=["buckets", "state_partitions", "watermark_delay"],
)
def test_the_reseed_that_a_refused_setting_names_is_enough(world, setting):
    land(world, [("a", 0, 1), ("b", MINUTE_US, 2)])
    run(world, "counts")
    stream = world.configure("counts", **setting)
    land(world, [("a", 0, 1), ("d", 0, 1)], minutes=300)
    with refused_until(f"reseed {stream.name}"):
        run(world, "counts")
    reseed(world.engine, world.lake, stream, ReseedOptions())
    run(world, "counts")
    until_us = oracle.until_us(world.commits, stream.watermark_delay // timedelta(microseconds=1))
    rows = Counter(oracle.outputs("counts", "a", all_rows(world), until_us))
    assert rows <= world.table("counts")  # what was settled under the shorter delay stays
    assert rows


@pytest.mark.parametrize("changed", ["watermark_delay", "state_schema"])
def test_a_reseeded_stream_that_has_not_run_since_is_told_the_reseed_too(world, changed):
    land(world, [("a", 0, 1), ("b", MINUTE_US, 2)])
    run(world, "counts")
    stream = world.streams["counts"]
    reseed(world.engine, world.lake, stream, ReseedOptions())
    if changed == "watermark_delay":
        world.configure("counts", watermark_delay=timedelta(hours=2))
    else:
        world.deploy("counts", "d")
    land(world, [("a", 0, 1)])
    with refused_until(f"reseed {stream.name}"):
        run(world, "counts")


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_promoting_reseed_takes_late_rows_in_killed_before_any_of_its_writes(kind):
    rng = random.Random(11)
    rows = [some_rows(rng) for _ in range(3)]
    writes = None
    number = 0
    while writes is None or number < writes:
        with open_world() as world:
            for commit in rows:
                land(world, commit)
                run(world, kind)

            def promote(world: World = world) -> None:
                reseed(world.engine, world.lake, world.streams[kind], ReseedOptions())

            if writes is None:
                writes = writes_of(promote).count
            else:
                number += 1
                assert killed_at(number, promote)
                promote()
            promoted = all_rows(world)
            land(world, [("a", 0, 1), ("b", MINUTE_US, 2), ("c", 90 * MINUTE_US, 3)])
            run(world, kind)
            since = oracle.stamped(world.commits)[len(promoted) :]
            folded = promoted + oracle.in_time(since, DELAY_US)
            assert len(folded) == len(promoted) + 2
            assert world.table(kind) == table_of(world, kind, folded)
