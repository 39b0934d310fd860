"""Streams of a source whose clock is that of its keys: what they fold after a repair of it."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest

from include.fold.admission import instant_of
from include.landing.bronze_commits import read_clock
from include.landing.clock_repair import open_repair
from spark_jobs.repair_clock import repair_clock
from spark_jobs.run_stream import drain
from tests.simulator import oracle
from tests.simulator.oracle import Emitted, Landed, Stamped
from tests.simulator.stream_files import KINDS
from tests.simulator.world import DELAY, GROUPED, MINUTE_US, World, open_world
from tests.simulator.writes import killed_at

DELAY_US, IDLE_US = (span // timedelta(microseconds=1) for span in (DELAY, GROUPED.idle_after))


@pytest.fixture
def world() -> Iterator[World]:
    with open_world(source=GROUPED) as made:
        yield made


def land(world: World, minutes: int = 30, **ago: int) -> None:
    """A row of each key, so many minutes before now."""
    world.pass_time(timedelta(minutes=minutes))
    world.ingest([Landed(key, world.now_us - m * MINUTE_US, 1) for key, m in ago.items()])


def run_all(world: World) -> None:
    for kind in KINDS:
        drain(world.engine, world.lake, world.streams[kind])


def stamped(world: World) -> list[Stamped]:
    return oracle.stamped(world.commits, IDLE_US)


def late(world: World) -> list[str]:
    return [row.row.key for row in stamped(world) if oracle.is_late(row, DELAY_US)]


def check_tables(world: World, rows: Sequence[Landed]) -> None:
    until_us = oracle.until_us(world.commits, DELAY_US, IDLE_US)
    for kind in KINDS:
        variant = world.deployed[kind]
        expected: list[Emitted] = (
            list(oracle.projection(kind, variant, rows, until_us).values())
            if kind == "counts_per_key"
            else oracle.outputs(kind, variant, rows, until_us)
        )
        assert sorted(world.table(kind).elements()) == sorted(expected), kind


def ahead(world: World) -> int:
    """All keys came under a machine clock that was ten hours ahead, but for two runs. M before that."""
    for _ in range(3):
        land(world, a=1, b=3)
        run_all(world)
    before_us = oracle.clock_us(world.commits, IDLE_US)
    right_us = world.now_us
    land(world, 600, a=0, b=0)
    world.now_us = right_us
    land(world, a=0, b=2)
    run_all(world)
    assert before_us is not None
    assert late(world) == ["a", "b"]
    return before_us


def repair(world: World, to_us: int | None) -> None:
    to = None if to_us is None else instant_of(to_us)
    repair_clock(world.engine, world.lake, world.source, to)


@pytest.mark.parametrize("death", range(1, 12))
def test_a_repair_that_is_killed_and_goes_on_leaves_the_same_clock(world, death):
    to_us = ahead(world)
    if killed_at(death, lambda: repair(world, to_us)):
        repair(world, None if open_repair(world.lake, GROUPED.name) else to_us)
    world.note_repairs()
    land(world, a=0, b=1)
    run_all(world)
    assert read_clock(world.lake, GROUPED).watermark_us == oracle.clock_us(world.commits, IDLE_US)
    check_tables(world, [row for commit in world.commits for row in commit.rows])
