"""A ledger made again from a log that does not tell all: what it cannot prove is not right."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from include.coverage.live import begun_by
from include.coverage.rebuild import apply_rebuilt, rebuild
from include.coverage.table_coverage import find_coverage, table_coverage
from include.lake.generations import read_generations
from include.plans.reseed_options import ReseedOptions
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.coverage.test_ledger import at_hour, land
from tests.simulator.auditor import Auditor
from tests.simulator.damage import clean_log, lose, parts_of
from tests.simulator.oracle import Landed
from tests.simulator.world import MINUTE_US, START_US, World, open_world
from tests.simulator.writes import killed_at

pytestmark = pytest.mark.slow


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as opened:
        yield opened


def run(world: World, kind: str) -> None:
    drain(world.engine, world.lake, world.streams[kind])


def names(world: World, kind: str) -> list[str]:
    return [finding.finding for finding in find_coverage(world.lake, world.streams[kind])]


def hours(world: World, kind: str, first: int, last: int) -> None:
    for hour in range(first, last):
        land(world, hour)
        run(world, kind)


def an_hour_by_other_code(world: World, kind: str) -> None:
    hours(world, kind, 0, 4)
    world.deploy(kind, "b")
    recompute(world.engine, world.lake, world.streams[kind], at_hour(1), at_hour(2))
    world.deploy(kind, "a")
    hours(world, kind, 4, 6)
    Auditor(world, kind).check()
    assert names(world, kind) == ["table_not_right"]


def test_what_a_cleaned_log_does_not_tell_any_more_is_not_right(world):
    an_hour_by_other_code(world, "counts")
    clean_log(parts_of(world, "counts")["table"])
    lose(world, "counts", "ops/coverage")
    hours(world, "counts", 6, 8)
    Auditor(world, "counts").check()
    assert names(world, "counts") == ["table_not_right"]
    reseed(world.engine, world.lake, world.streams["counts"], ReseedOptions())
    Auditor(world, "counts").check()
    assert names(world, "counts") == []


def at_minute(world: World, kind: str, minute: int, *rows: Landed) -> None:
    """Rows, and a clock row that settles all from before ten minutes ago; then a run."""
    world.now_us = START_US + minute * MINUTE_US
    world.ingest(rows)
    world.now_us += 1_000
    world.ingest_clock(world.now_us)
    run(world, kind)


def test_a_batch_of_other_code_that_emits_nothing_is_not_forgotten(world):
    kind = "silences"
    at_minute(world, kind, 11, Landed("a", START_US, 1))
    world.deploy(kind, "c")  # it counts an even value twice, and says so when the key falls silent
    at_minute(world, kind, 32, Landed("a", START_US + 20 * MINUTE_US, 2))
    lose(world, kind, "ops/coverage")
    world.deploy(kind, "a")
    at_minute(world, kind, 200, Landed("b", START_US + 190 * MINUTE_US, 1))
    Auditor(world, kind).check()
    assert names(world, kind) == ["table_not_right"]


def test_a_kill_while_a_ledger_is_written_anew_makes_nothing_right(world):
    an_hour_by_other_code(world, "counts")
    stream = world.streams["counts"]
    for write in (1, 2, 3):
        killed_at(write, lambda: apply_rebuilt(world.lake, stream))
        assert names(world, "counts") == ["table_not_right"]
        Auditor(world, "counts").check()
    apply_rebuilt(world.lake, stream)
    assert rebuild(world.lake, stream).differences == []


def test_an_entry_of_another_delay_is_not_gone_on_with(world):
    hours(world, "counts", 0, 2)
    row = read_generations(world.lake, world.streams["counts"].name).current
    assert row is not None
    entry = begun_by(row, [], "r", row["code"])
    other = replace(entry, number=1, delay_us=entry.delay_us + 1)
    assert begun_by(row, [other], "r", row["code"]).delay_us == entry.delay_us
    assert begun_by(row, [replace(entry, number=1)], "r", row["code"]).number == 1


def test_an_update_table_that_a_killed_run_left_ahead_is_not_right_until_the_next_one(world):
    kind = "counts_per_key"
    hours(world, kind, 0, 2)
    land(world, 2)
    killed = 0
    for write in range(4, 14):
        killed += killed_at(write, lambda: run(world, kind))
        Auditor(world, kind).check()
        if table_coverage(world.lake, world.streams[kind]).coverage.wrong:
            assert names(world, kind) == ["table_not_right"]
    assert killed
    run(world, kind)
    Auditor(world, kind).check()
    assert names(world, kind) == []
