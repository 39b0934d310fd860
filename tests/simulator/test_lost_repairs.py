"""Repairs of a clock whose rows in `ops/clock_repairs` are lost, and what a repair meets."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.coverage.table_coverage import find_coverage
from include.fold.instants import instant_of
from include.lake.generations import read_generations
from include.lake.paths import LakeError
from include.landing.clock import read_logged_clock
from include.landing.clock_repair import (
    ClockRepair,
    newest_repair,
    open_repair,
    unknown_reset_us,
    why_not_run,
)
from include.plans.reseed_options import ReseedOptions
from include.savepoints.lineage import is_mapped, same_code
from include.savepoints.manifest import savepoints_of
from spark_jobs.recompute_interval import recompute
from spark_jobs.repair_clock import repair_clock
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.simulator.operations import HOUR_US, Operations
from tests.simulator.sequences import one_more_run, ordinary_days
from tests.simulator.stream_files import KINDS
from tests.simulator.world import MINUTE_US, SOURCE

RESEED = "spark_jobs.repair_clock.reseed"
RECORDED = "spark_jobs.repair_clock.record_reset"
CARRIED_OUT = "spark_jobs.reseed_stream._carry_out"


@contextmanager
def two_days(kind: str = "counts") -> Iterator[Operations]:
    """A beginning without a late row."""
    operations = Operations(kind)
    try:
        ordinary_days(operations, 2)
        yield operations
    finally:
        operations.close()


@pytest.fixture
def do() -> Iterator[Operations]:
    with two_days() as operations:
        yield operations


def clock_runs_ahead(do: Operations, hours: int = 30) -> None:
    do.land_far_ahead("a", hours)
    do.run(None)


def repair(do: Operations) -> int:
    """Of a wrong clock, to five minutes ago, or what is left of one; what it is set back to."""
    begun = open_repair(do.world.lake, SOURCE.name)
    to_us = do.world.now_us - 5 * MINUTE_US
    do.pass_time(1)
    repair_clock(do.world.engine, do.world.lake, SOURCE, None if begun else instant_of(to_us))
    do.world.note_repairs()
    return begun.to_us if begun else to_us


def lose_repairs(do: Operations) -> None:
    shutil.rmtree(do.world.lake.ops("clock_repairs"))


def newest(do: Operations) -> ClockRepair:
    found = newest_repair(do.world.lake, SOURCE.name)
    assert found is not None
    return found


def clock_us(do: Operations) -> int | None:
    return read_logged_clock(do.world.lake, SOURCE).watermark_us


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_repair_stops_whoever_was_not_reseeded_since(kind):
    with two_days(kind) as do:
        lake, stream = do.world.lake, do.stream
        clock_runs_ahead(do)
        with do.dying_before(RESEED):
            do.repair_clock(None, ago=5)
        recorded = newest(do)
        lose_repairs(do)
        known = newest(do)
        assert known.is_done
        assert (known.repair, known.to_us) == (recorded.repair, recorded.to_us)
        assert (known.from_us, known.reset_at_us) == (recorded.from_us, recorded.reset_at_us)
        assert (
            unknown_reset_us(lake, SOURCE.name, read_generations(lake, stream.name).current)
            is not None
        )
        do.pass_time(20)
        do.land_in_time("a", [1], 1)  # in time by the clock that was set back, and after it was
        do.pass_time(240)
        do.clock_row()
        assert f"./stateful reseed {stream.name} --apply" in why_not_run(lake, stream)
        for job in (lambda: drain(do.world.engine, lake, stream), lambda: backfill(do)):
            with pytest.raises(LakeError, match="the clock of bronze/sent was set back to"):
                job()
        assert find_coverage(lake, stream)
        reseed(do.world.engine, lake, stream, ReseedOptions())
        assert why_not_run(lake, stream) is None
        drain(do.world.engine, lake, stream)
        one_more_run(do)
        coverage = do.auditor.check()
        assert coverage is not None
        assert not coverage.wrong


def test_a_begun_repair_that_a_restore_took_back_is_begun_again_under_the_next_number(do):
    """Delta's RESTORE takes rows back, and no record of a transaction."""
    clock_runs_ahead(do)
    with do.dying_before("spark_jobs.repair_clock._commit_reset"):
        do.repair_clock(None, ago=5)
    DeltaTable(do.world.lake.ops("clock_repairs")).restore(0)
    repair(do)
    assert (newest(do).repair, newest(do).is_done) == (2, True)
    one_more_run(do)
    do.auditor.check()


def backfill(do: Operations) -> None:
    start, until = (instant_of(do.world.now_us - hours * HOUR_US) for hours in (2, 1))
    recompute(do.world.engine, do.world.lake, do.stream, start, until)


def test_of_a_repair_the_log_of_bronze_need_not_know_any_more(do):
    clock_runs_ahead(do)
    repair(do)
    recorded = newest(do)
    one_more_run(do)
    lose_repairs(do)
    do.optimize("bronze")
    do.clean_log("bronze")
    known = newest(do)
    assert (known.to_us, known.reset_at_us) == (recorded.to_us, recorded.reset_at_us)
    assert why_not_run(do.world.lake, do.stream) is None  # its state knows of it


@pytest.mark.parametrize("before", [1, 2])
def test_after_lost_repairs_the_next_one_sets_the_clock_back(do, before):
    for _ in range(before):
        clock_runs_ahead(do)
        repair(do)
        one_more_run(do)
    lose_repairs(do)
    clock_runs_ahead(do, hours=200)
    to_us = repair(do)
    assert clock_us(do) == to_us // 1000 * 1000
    assert (newest(do).repair, newest(do).is_done) == (before + 1, True)
    one_more_run(do)
    do.auditor.check()


def test_of_two_repairs_an_older_copy_knows_one_and_bronze_the_other(do, tmp_path):
    clock_runs_ahead(do)
    repair(do)
    one_more_run(do)
    repairs, copy = Path(do.world.lake.ops("clock_repairs")), tmp_path / "clock_repairs"
    shutil.copytree(repairs, copy)
    clock_runs_ahead(do)
    with do.dying_before(RESEED):
        do.repair_clock(None, ago=5)
    recorded = newest(do)
    shutil.rmtree(repairs)
    shutil.copytree(copy, repairs)
    assert (newest(do).repair, newest(do).reset_at_us) == (2, recorded.reset_at_us)
    with pytest.raises(LakeError, match="was set back to"):
        drain(do.world.engine, do.world.lake, do.stream)


def intent_put_back(do: Operations, copy: Path) -> ClockRepair:
    """A repair that was finished, of which an older copy knows only that it was begun."""
    clock_runs_ahead(do)
    with do.dying_before(RECORDED):
        do.repair_clock(None, ago=5)
    repairs = Path(do.world.lake.ops("clock_repairs"))
    shutil.copytree(repairs, copy)
    repair(do)
    finished = newest(do)
    one_more_run(do)
    shutil.rmtree(repairs)
    shutil.copytree(copy, repairs)
    return finished


def test_an_older_copy_of_a_finished_repair_is_finished_again_as_of_when_it_was_made(do, tmp_path):
    finished = intent_put_back(do, tmp_path / "copy")
    assert not newest(do).is_reset
    repair(do)
    assert newest(do) == finished


def test_where_nobody_knows_the_commit_of_an_older_copy_it_may_be_moved_away(do, tmp_path):
    finished = intent_put_back(do, tmp_path / "copy")
    do.optimize("bronze")
    do.clean_log("bronze")
    with pytest.raises(LakeError, match="set-aside ops/clock_repairs --apply"):
        repair(do)
    lose_repairs(do)
    assert newest(do).reset_at_us == finished.reset_at_us
    assert why_not_run(do.world.lake, do.stream) is None


def test_a_savepoint_by_a_wrong_machine_clock_goes_with_the_repair(do):
    right_us = do.world.now_us
    do.pass_time(200 * 60)
    do.land_in_time("a", [0], 1)
    do.pass_time(1)
    do.run(None)  # writes a savepoint, as of then and by that clock
    do.world.now_us = right_us
    do.pass_time(10)
    lake, name = do.world.lake, do.stream.name
    assert [s for s in savepoints_of(lake, name) if s.until_us > do.world.now_us]
    repair(do)
    for _ in range(4):
        one_more_run(do, wait=720)
        assert not [s for s in savepoints_of(lake, name) if s.until_us > do.world.now_us]
    live = [s for s in savepoints_of(lake, name) if s.until_us > right_us + HOUR_US]
    assert len(live) >= 3  # one a day again


def migration_cut_off(do: Operations) -> str:
    """Before its table; the lineage of what it was to make."""
    do.reseed(None)
    do.pass_time(120)
    do.clock_row()
    do.run(None)
    with do.dying_before(CARRIED_OUT):
        do.migrate(None)
    begun = read_generations(do.world.lake, do.stream.name).intent
    assert begun is not None
    return str(begun["code"])


@pytest.mark.parametrize("after", ["repair", "reseed", "rescale"])
def test_a_migration_that_was_cut_off_is_carried_on_by_whoever_reseeds_next(do, after):
    lineage = migration_cut_off(do)
    if after == "repair":
        do.land_far_ahead("a", 30)  # and no run comes before the repair, and finishes it
        repair(do)
    elif after == "rescale":
        do.rescale(None, buckets=3)
    else:
        do.reseed(None)
    row = read_generations(do.world.lake, do.stream.name).current
    assert row["reseed"] == "migrate"
    assert is_mapped(row["code"])  # of an earlier savepoint, where the clock was set back before
    assert same_code(row["code"], lineage)
    one_more_run(do)
    do.auditor.check()


def test_a_migration_that_was_cut_off_is_given_up_where_that_is_asked_for(do):
    lineage = migration_cut_off(do)
    do.recompute_all(None)
    row = read_generations(do.world.lake, do.stream.name).current
    assert row["reseed"] == "recompute"
    assert not is_mapped(row["code"])
    assert same_code(row["code"], lineage)
