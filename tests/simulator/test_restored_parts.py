"""Parts of a lake that are older than the others, and what a lake forgets with a part that is lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.care.check_checkpoint import check_checkpoint
from include.coverage.give_up import give_up_reseed
from include.coverage.table_coverage import coverage_text
from include.lake.paths import LakeError
from include.lake.table_seal import reseal
from include.landing.bronze_tables import create_tables
from include.plans.reseed_options import ReseedOptions
from include.settings import SettingsError
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.simulator.damage import lose, parts_of
from tests.simulator.operations import Operations
from tests.simulator.sequences import SWITCH, days_in_time, one_more_run
from tests.simulator.stream_files import KINDS
from tests.simulator.world import MINUTE_US, SOURCE, Landed

CARRIED_OUT = "spark_jobs.reseed_stream._carry_out"


@contextmanager
def after_some_days(kind: str, on_error: str = "stop") -> Iterator[Operations]:
    do = Operations(kind, on_error)
    try:
        days_in_time(do)
        yield do
        do.way_out()
    finally:
        do.close()


def run_by_other_code(do: Operations) -> None:
    """A batch of rows that wait, which emits nothing, is in the state all the same."""
    do.deploy("c")
    one_more_run(do, value=2)
    do.deploy("a")


@pytest.mark.parametrize("kind", ["counts", "counts_per_key"])
def test_a_state_of_two_codes_is_no_clean_savepoint_though_its_generation_forgot(kind):
    with after_some_days(kind) as do:
        do.pass_time(30)
        do.clock_row()
        do.run(None)  # nothing waits: the other code reads more of its events
        do.back_up("ops/generations")
        run_by_other_code(do)
        do.put_back("ops/generations")
        one_more_run(do, "b")
        do.savepoint(None)
        do.reseed(None)
        one_more_run(do)


def test_other_code_is_not_forgotten_with_the_ledger_where_failed_calls_are_rejected_by_now():
    with after_some_days("silences") as do:
        do.world.configure("silences", on_error="quarantine")
        do.auditor.note_code()
        for value, variant in ((1, "a"), (2, "c")):
            do.deploy(variant)
            do.pass_time(10)
            do.land_in_time("a", [0], value)
            do.pass_time(12)
            do.clock_row()
            do.run(None)
        do.deploy("a")
        do.lose("ops/coverage")
        do.pass_time(120)
        do.clock_row()
        do.run(None)


def test_a_savepoint_of_rows_that_bronze_has_lost_is_no_base():
    with after_some_days("counts") as do:
        do.back_up_lake()
        commits, now_us = len(do.world.commits), do.world.now_us
        one_more_run(do)
        do.savepoint(None)
        for part in parts_of(do.world, "counts").keys() - {"savepoint rows", "ops/savepoints"}:
            do.copies.put_back("counts", part)
        del do.world.commits[commits:]
        do.world.now_us, do.harmed = now_us + MINUTE_US, True
        one_more_run(do, "b")
        do.rescale(None, buckets=3)
        one_more_run(do, "b")


def test_a_reseeded_state_does_not_begin_with_another_bronze():
    with after_some_days("counts") as do:
        do.rescale(None, buckets=3)
        do.harmed = True
        lose(do.world, "counts", "bronze")
        create_tables(do.world.lake, SOURCE)
        rows = [row for commit in do.world.commits for row in commit.rows]
        do.world.commits.clear()
        for new in ([*rows, Landed("b", do.world.now_us, 1)], [Landed("a", do.world.now_us, 1)]):
            do.pass_time(30)
            do.world.ingest(new)
        with pytest.raises(LakeError, match=r"is another table .* --recompute --apply"):
            drain(do.world.engine, do.world.lake, do.stream)
        reseed(do.world.engine, do.world.lake, do.stream, ReseedOptions(recompute=True))
        drain(do.world.engine, do.world.lake, do.stream)
        do.auditor.check()


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe"])
@pytest.mark.parametrize("log", ["offsets", "commits"])
@pytest.mark.parametrize(
    "kind",
    [kind if kind == "silences" else pytest.param(kind, marks=pytest.mark.full) for kind in KINDS],
)
def test_a_stream_with_a_damaged_checkpoint_can_be_reseeded(kind, log, damage):
    with after_some_days(kind) as do:
        checkpoints = Path(do.world.lake.checkpoint(do.stream.name, 0)).parent
        newest = max(checkpoints.iterdir(), key=lambda path: int(path.name))
        files = [path for path in (newest / log).iterdir() if path.name.isdecimal()]
        max(files, key=lambda path: int(path.name)).write_bytes(damage)
        do.harmed = True
        do.pass_time(1)
        reseed(do.world.engine, do.world.lake, do.stream, ReseedOptions(recompute=True))
        one_more_run(do)


def test_a_reseed_is_not_given_up_when_one_that_it_overtook_has_replaced_rows():
    with after_some_days("counts") as do:
        with do.dying_before(SWITCH):
            do.rewind(None, ago=20)
        with do.dying_before(CARRIED_OUT):
            do.rescale(None, buckets=3)
        with pytest.raises(SettingsError, match="are in the table of"):
            give_up_reseed(do.world.lake, do.stream)


def test_a_reseed_is_not_given_up_beside_a_table_that_nobody_can_count_on():
    with after_some_days("counts") as do:
        with do.dying_before(SWITCH):
            do.rewind(None, ago=20)
        do.lose("ops/tables")
        with pytest.raises(LakeError, match="was lost"):
            give_up_reseed(do.world.lake, do.stream)


def test_a_table_that_was_cared_for_and_then_idle_is_still_recorded_when_its_log_is_cleaned():
    with after_some_days("counts_per_key") as do:
        table = DeltaTable(do.world.lake.table(do.stream.name))
        do.optimize("table")
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        reseal(do.world.lake, f"tables/{do.stream.name}")
        do.clean_log("table")
        assert "right until there" in coverage_text(do.world.lake, do.stream)


def optimize_until(do: Operations, version: int) -> None:
    """Commits that change no row, by others, until the table's version is that one."""
    path = do.world.lake.table(do.stream.name)
    while DeltaTable(path).version() < version:
        DeltaTable(path).optimize.compact()
        if DeltaTable(path).version() < version:
            DeltaTable(path).alter.set_table_properties(
                {"delta.logRetentionDuration": "interval 30 days"}
            )


@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_ledger_is_noticed_though_maintenance_made_the_table_s_version_as_high(kind):
    with after_some_days(kind) as do:
        do.back_up_lake()
        one_more_run(do, "b")
        entered = DeltaTable(do.world.lake.table(do.stream.name)).version()
        for part in parts_of(do.world, kind).keys() - {"ops/coverage", "bronze"}:
            if do.copies.has(part):
                do.copies.put_back(kind, part)
        do.harmed = True
        optimize_until(do, entered + 1)
        do.auditor.check()
        with pytest.raises(LakeError, match="is not what was recorded of it"):
            drain(do.world.engine, do.world.lake, do.stream)


def test_lost_generations_are_named():
    with after_some_days("counts") as do:
        do.lose("ops/generations")
        found = check_checkpoint(do.world.lake, do.stream).findings
        assert [each.finding for each in found if each.severity == "error"] == ["table_changed"]
