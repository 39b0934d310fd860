"""Checks of one's own: what does not meet one is not published, whatever is done before and after."""

import random
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta

import pytest

from include.fold.admission import instant_of
from include.lake.delta_log import delta_table
from include.lake.errors import SettingsError
from include.lake.ops import read_ops
from include.settings import Check, DataCheckError
from include.stream.rebuild_plan import RebuildOptions
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.restate_interval import restate
from tests.refused import refused_until
from tests.simulator.auditor import Auditor
from tests.simulator.oracle import Emitted
from tests.simulator.steps import all_rows, land, live_table, run, some_rows, table_of
from tests.simulator.stream_files import KINDS
from tests.simulator.world import World, open_world
from tests.simulator.writes import killed_at, killed_before_each

MOST = 3
FEW = Check(name="few", each_row=f"amount <= {MOST}")
HOUR_US = 3_600_000_000


def declare(world: World, kind: str, *checks: Check) -> None:
    world.configure(kind, checks=checks)


def warn(check: Check) -> Check:
    return Check(name=check.name, each_row=check.each_row, severity="warning")


def amounts(table: Counter[Emitted]) -> list[int]:
    return [emitted.row[-1] for emitted in table.elements()]


def findings(world: World, severity: str) -> list[dict]:
    rows = read_ops(world.lake, "findings", {"severity": severity}).to_pylist()
    return [row for row in rows if row["finding"].startswith("data_check_")]


def good_and_bad(world: World, kind: str) -> Counter[Emitted]:
    """A run whose rows are good, and rows that will not be; the table between the two."""
    land(world, [("a", 0, 1), ("b", 0, 1)])
    land(world, [("c", 0, 1)])
    run(world, kind)
    land(world, [("a", 60_000_000 * ago, 1) for ago in range(5)])
    land(world, [("c", 0, 1)])
    return world.table(kind)


@pytest.mark.parametrize("kind", ["counts", "counts_per_key"])
def test_a_batch_that_does_not_meet_one_is_not_published_and_goes_on_once_it_is_a_warning(kind):
    with open_world() as world:
        declare(world, kind, FEW)
        before = good_and_bad(world, kind)
        version = delta_table(world.lake.table(f"sim_{kind}")).version()
        batches = read_ops(world.lake, "batches").num_rows
        for _ in range(2):  # again and again
            with pytest.raises(DataCheckError) as stopped:
                run(world, kind)
            assert world.table(kind) == before
            assert delta_table(world.lake.table(f"sim_{kind}")).version() == version
            assert read_ops(world.lake, "batches").num_rows == batches
        told = str(stopped.value)
        assert "\n" not in told
        assert "check few: " in told
        assert '"key": "a", "what": "count", "amount": ' in told
        assert stopped.value.command == f"./stateful stream sim_{kind}"
        assert [row["severity"] for row in findings(world, "error")] == ["error", "error"]

        declare(world, kind, warn(FEW))
        run(world, kind)
        assert world.table(kind) == live_table(world, kind) != before
        assert "published all the same" in findings(world, "warning")[-1]["detail"]
        wanted = sum(amount > MOST for amount in amounts(world.table(kind)))
        assert sum(row["count"] for row in findings(world, "warning")) == wanted


def test_rows_are_judged_together_by_what_is_published_at_once():
    with open_world() as world:
        declare(world, "counts", Check(name="enough", together="count(*) >= 2"))
        land(world, [("a", 0, 1)])
        land(world, [("b", 0, 1)])
        with pytest.raises(DataCheckError):
            run(world, "counts")
        land(world, [("b", 0, 1)])
        with pytest.raises(DataCheckError):
            run(world, "counts")  # the batch is the one that was planned
        assert world.table("counts") == Counter()


def test_a_batch_that_is_in_the_table_is_not_judged_again():
    with open_world() as world:
        before = good_and_bad(world, "counts")
        for at in range(1, 20):
            if world.table("counts") == before:
                killed_at(at, lambda: run(world, "counts"))
        after = world.table("counts")
        assert after != before
        declare(world, "counts", FEW)
        run(world, "counts")
        assert world.table("counts") == after == live_table(world, "counts")
        assert findings(world, "error") == []


@pytest.mark.parametrize("kind", ["counts", "counts_per_key"])
def test_a_rebuild_that_does_not_meet_one_is_taken_back_and_live_goes_on(kind):
    with open_world() as world:
        good_and_bad(world, kind)
        run(world, kind)
        stream, before = world.streams[kind], world.table(kind)
        declare(world, kind, FEW)
        with refused_until(f"rebuild sim_{kind} --apply"):
            rebuild(
                world.engine, world.lake, world.streams[kind], RebuildOptions(full_refresh=True)
            )
        assert world.table(kind) == before
        declare(world, kind)
        land(world, [("b", 0, 1)])
        run(world, kind)
        assert world.table(kind) == live_table(world, kind)
        rebuild(world.engine, world.lake, stream, RebuildOptions(full_refresh=True))
        run(world, kind)
        assert world.table(kind) == table_of(world, kind, all_rows(world))


@pytest.mark.full
@pytest.mark.parametrize("kind", ["counts", "counts_per_key"])
def test_a_warning_is_told_of_also_when_the_run_was_killed_behind_the_rows(kind):
    @contextmanager
    def made():
        with open_world() as world:
            good_and_bad(world, kind)
            declare(world, kind, warn(FEW))
            yield world

    for world in killed_before_each(made, lambda world: run(world, kind)):
        run(world, kind)
        if max(amounts(world.table(kind)), default=0) > MOST:
            assert "published all the same" in findings(world, "warning")[-1]["detail"]


@pytest.mark.parametrize(
    "seed", [2, *(pytest.param(seed, marks=pytest.mark.full) for seed in (0, 1, 3, 4, 5, 6, 7))]
)
def test_sequences_of_checks_runs_restates_and_kills_end_right(seed):
    rng, kind = random.Random(seed), KINDS[seed % len(KINDS)]
    with open_world() as world:
        auditor = Auditor(world, kind)
        stops = 0
        for _ in range(24):
            limit = rng.choice([None, 2, 5, 9])
            check = Check(name="few", each_row=f"amount <= {limit}")
            declare(world, kind, *([] if limit is None else [check]))
            world.deploy(kind, "a")
            land(world, some_rows(rng, 4), minutes=rng.choice([10, 90]))
            stops += stopped_by_check(world, kind, rng)
            auditor.check()
        assert stops > 3
        declare(world, kind)
        world.deploy(kind, "a")
        rebuild(world.engine, world.lake, world.streams[kind], RebuildOptions(full_refresh=True))
        run(world, kind)
        assert world.table(kind) == table_of(world, kind, all_rows(world))
        auditor.check()


def stopped_by_check(world: World, kind: str, rng: random.Random) -> bool:
    """A job, which a kill may cut off; whether a check has stopped it."""
    engine, lake, stream = world.engine, world.lake, world.streams[kind]
    back = rng.randrange(1, 20)
    start = instant_of((world.now_us // HOUR_US - back) * HOUR_US)
    jobs = [
        lambda: run(world, kind),
        lambda: restate(engine, lake, stream, start, start + timedelta(hours=3)),
        lambda: rebuild(engine, lake, stream, RebuildOptions()),
    ]
    job = rng.choices(jobs, [4, 2, 1])[0]
    try:
        if rng.random() < 0.3:
            killed_at(rng.randrange(1, 12), job)
        else:
            job()
    except DataCheckError:
        return True
    except SettingsError:
        return False  # not complete yet
    return False
