"""Rejected rows after reseeds that were cut off, behind backfills, and put back from copies."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from include.coverage.table_coverage import find_coverage
from include.coverage.trust import table_version
from include.plans.reseed_plan import ReseedOptions
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.refused import refused_until
from tests.simulator.actions import OF_STREAM
from tests.simulator.operations import Operations
from tests.simulator.sequences import ENTERED, SWITCH, one_more_run, ordinary_days
from tests.simulator.steps import all_rows
from tests.simulator.stream_files import KINDS
from tests.simulator.test_rejections import failing
from tests.simulator.writes import killed_at, writes_of

REPLACED = "spark_jobs.reseed_stream.replace_rejected"
FAILS = 3  # the value that variant e raises for


@contextmanager
def two_days(kind: str) -> Iterator[Operations]:
    """A stream that rejects, of two days without a late row or a failed call."""
    do = Operations(kind, on_error="quarantine")
    try:
        do.deploy("e")
        ordinary_days(do, 2)
        yield do
    finally:
        do.close()


def fail_late(do: Operations, hours: int = 20) -> None:
    do.land_late("a", [hours], FAILS)
    do.land_late("a", [hours - 1], 1)
    do.run(None)


def check(do: Operations, calls: int) -> None:
    """All failed calls are in `rejected/<stream>`, and nothing else."""
    expected = failing(do.world, do.kind, all_rows(do.world))
    assert expected.total() == calls
    assert do.world.rejected(do.kind) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [REPLACED, SWITCH])
def test_a_reseed_rejects_what_one_that_it_overtakes_has_not_written(kind, step):
    with two_days(kind) as do:
        fail_late(do)
        with do.dying_before(step):
            do.reseed(None)
        do.reseed(None)
        do.run(None)
        check(do, 1)


def test_a_reseed_puts_back_what_a_rewind_that_it_overtakes_took_away():
    with two_days("counts") as do:
        one_more_run(do, "a", FAILS)
        with do.dying_before(SWITCH):
            do.rewind(None, ago=20)
        with do.dying_before(REPLACED):
            do.reseed(None)
        do.reseed(None)
        check(do, 1)


@pytest.mark.parametrize("step", [ENTERED, REPLACED, SWITCH])
def test_a_rewind_that_takes_only_rejected_rows_away_is_made_good_by_the_next_reseed(step):
    with two_days("counts") as do:
        do.reseed(None)
        do.run(None)
        one_more_run(do, "a", FAILS)
        version = table_version(do.world.lake, do.stream.name)
        with do.dying_before(step):
            do.rewind(None, ago=1)
        assert table_version(do.world.lake, do.stream.name) == version
        do.reseed(None)
        check(do, 1)


@pytest.mark.parametrize(
    ("kind", "then"),
    [
        pytest.param("counts", "reseed", marks=pytest.mark.full),
        pytest.param("counts_per_key", "reseed", marks=pytest.mark.full),
        pytest.param("counts", "run", marks=pytest.mark.full),
        pytest.param("counts_per_key", "run", marks=pytest.mark.full),
    ],
)
def test_a_reseed_killed_before_any_of_its_writes_leaves_no_rejected_row_behind(kind, then):
    writes, number = None, 0
    while writes is None or number < writes:
        with two_days(kind) as do:
            fail_late(do)

            def again(do: Operations = do) -> None:
                do.pass_time(1)
                reseed(do.world.engine, do.world.lake, do.stream, ReseedOptions())

            if writes is None:
                writes = writes_of(again).count
                continue
            number += 1
            assert killed_at(number, again)
            getattr(do, then)(None)
            do.reseed(None)
            check(do, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reseed_that_begins_behind_a_backfill_has_its_rejected_rows(kind):
    with two_days(kind) as do:
        fail_late(do)
        do.backfill(ago=24, span=24, kill=None)
        do.reseed(None)
        check(do, 1)


def test_a_backfill_of_a_later_day_hides_no_rejected_row_of_an_update_stream():
    with two_days("counts_per_key") as do:
        fail_late(do, hours=40)
        for kill in (3, 4, 5, None):
            do.backfill(ago=20, span=16, kill=kill)
        do.reseed(None)
        check(do, 1)


def test_a_run_refuses_a_checkpoint_that_is_older_than_the_rejected_rows():
    with two_days("counts") as do:
        do.back_up()
        one_more_run(do, "a", FAILS)
        do.put_back_parts(*OF_STREAM)
        with refused_until("reseed sim_counts --apply"):
            drain(do.world.engine, do.world.lake, do.stream)
        do.reseed(None)
        one_more_run(do, "b", FAILS)
        check(do, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("older", [False, True])
def test_rejected_rows_that_are_lost_or_older_stop_the_run_and_a_reseed_makes_them_anew(
    kind, older, tmp_path
):
    with two_days(kind) as do:
        path = Path(do.world.lake.rejected(do.stream.name))
        one_more_run(do, "a", FAILS)
        shutil.copytree(path, tmp_path / "copy")
        one_more_run(do, "b", FAILS)
        shutil.rmtree(path)
        if older:
            shutil.copytree(tmp_path / "copy", path)
        named = find_coverage(do.world.lake, do.stream)
        assert [found.finding for found in named] == ["table_changed"]
        with refused_until(f"reseed {do.stream.name} --apply"):
            drain(do.world.engine, do.world.lake, do.stream)
        with do.dying_before(REPLACED):
            do.reseed(None)
        do.reseed(None)
        check(do, 2)
        assert find_coverage(do.world.lake, do.stream) == []
        one_more_run(do, "a", FAILS)
        check(do, 3)


def test_a_backfill_by_other_code_that_died_behind_its_rejected_rows_is_told_of():
    with two_days("counts") as do:
        one_more_run(do, "a", FAILS)
        one_more_run(do, "b", 1)
        do.deploy("a")  # it fails for none
        with do.dying_before("tests.simulator.local_engine.ArrowProductTable.replace_range"):
            do.backfill(ago=24, span=24, kill=None)
        assert not do.world.rejected(do.kind)
        do.deploy("e")
        assert "table_not_right" in [f.finding for f in find_coverage(do.world.lake, do.stream)]
        do.backfill(ago=24, span=24, kill=None)
        check(do, 1)
        assert find_coverage(do.world.lake, do.stream) == []


def test_a_backfill_by_other_code_that_died_where_nothing_was_ever_rejected_leaves_all_right():
    with two_days("counts") as do:
        do.deploy("a")
        with do.dying_before("tests.simulator.local_engine.ArrowProductTable.replace_range"):
            do.backfill(ago=24, span=24, kill=None)
        do.deploy("e")
        assert find_coverage(do.world.lake, do.stream) == []
