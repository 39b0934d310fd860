"""A wrong clock, repaired: what the streams of a source come to is what the oracle says."""

from datetime import timedelta

import pytest
from deltalake import DeltaTable

from include.amend.plans import plan_set_watermark
from include.fold.admission import instant_of, micros_of
from include.ingest.amendments import amendments_of
from include.lake.errors import SettingsError
from include.lake.generations import read_generations
from include.stream.bronze import newest_bronze
from include.stream.manifest import savepoints_of
from include.stream.open_stream import has_waiting_rows
from include.stream.rebuild_plan import RebuildOptions
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.run_stream import drain
from spark_jobs.set_watermark import set_watermark
from tests.refused import refused_until
from tests.simulator import oracle
from tests.simulator.oracle import Emitted, Landed
from tests.simulator.steps import DELAY_US, JOBS
from tests.simulator.stream_files import KINDS
from tests.simulator.world import MINUTE_US, SOURCE, World
from tests.simulator.writes import killed_at

NOT_REBUILD = [job for name, job in JOBS.items() if name != "rebuild"]


def land(world: World, rows: list[tuple[str, int]], minutes: int = 5) -> None:
    """Rows of (key, minutes before now); negative minutes: after now."""
    world.pass_time(timedelta(minutes=minutes))
    world.ingest([Landed(key, world.now_us - ago * MINUTE_US, 1) for key, ago in rows])


def run_all(world: World) -> None:
    for kind in KINDS:
        drain(world.engine, world.lake, world.streams[kind])


def poisoned(world: World, ahead: int = 120, minutes: int = 600) -> int:
    """An ordinary beginning, then a commit under a machine clock `minutes` ahead. M before that."""
    for _ in range(3):
        land(world, [("a", 1), ("b", 3)], minutes=20)
        run_all(world)
    before_us = world.clock_us
    right_us = world.now_us
    world.pass_time(timedelta(minutes=minutes))
    world.ingest([Landed("far", right_us + ahead * MINUTE_US, 1)])
    world.now_us = right_us
    run_all(world)
    for _ in range(2):
        land(world, [("a", 0), ("b", 2), ("c", 1)])
        run_all(world)
    return before_us


def repair(world: World, to_us: int | None) -> None:
    to = None if to_us is None else instant_of(to_us)
    set_watermark(world.engine, world.lake, SOURCE, to)


def expected(world: World, kind: str) -> list[Emitted]:
    """The table when all rows up to the newest repair are in it, and later ones if not late."""
    stamped = oracle.stamped(world.commits)
    later = max(i for i, commit in enumerate(world.commits) if commit.reset_us is not None)
    before = sum(len(commit.rows) for commit in world.commits[:later])
    rows = [row.row for row in stamped[:before]] + oracle.in_time(stamped[before:], DELAY_US)
    until_us = oracle.until_us(world.commits, DELAY_US)
    if kind == "counts_per_key":
        return sorted(oracle.projection(kind, world.deployed[kind], rows, until_us).values())
    return sorted(oracle.outputs(kind, world.deployed[kind], rows, until_us))


def check_tables(world: World) -> None:
    for kind in KINDS:
        assert sorted(world.table(kind).elements()) == expected(world, kind), kind


def test_an_instant_that_cannot_be_is_refused_and_all_see_a_repair_as_it_was_planned(world):
    before_us = poisoned(world)
    clock_us = world.clock_us
    first_us = oracle.clock_us(world.commits[:1])
    # None is for a repair that is open.
    for instant_us in (clock_us, world.now_us + MINUTE_US, first_us - 1000, None):
        with pytest.raises(SettingsError):
            repair(world, instant_us)
    plan = plan_set_watermark(world.lake, SOURCE, instant_of(before_us))
    # "far", and what happened after that instant.
    told = ("7 rows", *(stream.name for stream in world.streams.values()))
    assert [part for part in told if part not in plan.text] == []
    assert amendments_of(world.lake, SOURCE.name).open is None

    assert killed_at(6, lambda: repair(world, before_us))
    assert amendments_of(world.lake, SOURCE.name).open is not None
    with pytest.raises(SettingsError):
        repair(world, before_us + MINUTE_US)
    for job in NOT_REBUILD:
        with refused_until("set-watermark sent"):
            job(world, "counts")
    repair(world, before_us)
    DeltaTable(world.lake.bronze(SOURCE.name)).optimize.compact()
    assert world.clock_us == before_us
    assert newest_bronze(world.lake, SOURCE.name).watermark_us == before_us


def test_a_stream_that_did_not_take_part_runs_once_it_is_rebuilt(world):
    """It was added later."""
    others = {name: stream for name, stream in world.streams.items() if name != "silences"}
    for _ in range(3):
        land(world, [("a", 1), ("b", 3)], minutes=20)
        for stream in others.values():
            drain(world.engine, world.lake, stream)
    before_us = world.clock_us
    land(world, [("far", -50)])
    land(world, [("a", 0)])
    land(world, [("a", 30)])
    repair(world, before_us)
    world.note_repairs()
    land(world, [("a", 0)])
    stream = world.streams["silences"]
    assert read_generations(world.lake, stream.name).current is None
    assert has_waiting_rows(world.lake, stream)
    for job in NOT_REBUILD:
        with refused_until(f"rebuild {stream.name} --apply"):
            job(world, "silences")
    rebuild(world.engine, world.lake, stream, RebuildOptions())
    land(world, [("b", 0)])
    run_all(world)
    check_tables(world)


def test_savepoints_ahead_of_the_clock_go_so_that_others_are_written(world):
    before_us = poisoned(world, ahead=30 * 24 * 60, minutes=31 * 24 * 60)
    name = world.streams["counts"].name
    ahead = [s for s in savepoints_of(world.lake, name) if s.until_us > world.now_us]
    assert ahead
    repair(world, before_us)
    world.note_repairs()
    assert not [s for s in savepoints_of(world.lake, name) if s.until_us > world.now_us]
    land(world, [("a", 0)], minutes=24 * 60)
    run_all(world)
    newest = savepoints_of(world.lake, name)[-1]
    assert newest.kind == "live"
    assert micros_of(newest.created_at) <= world.now_us
    check_tables(world)
