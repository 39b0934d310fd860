"""Parts of a lake that are lost, damaged, or put back from one time."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from deltalake import DeltaTable

from include.coverage.table_coverage import table_coverage
from include.plans.reseed_plan import ReseedOptions
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.refused import refused, refused_until
from tests.simulator.damage import begin_anew
from tests.simulator.operations import Operations
from tests.simulator.sequences import days_in_time
from tests.simulator.world import Landed, open_world


@contextmanager
def after_some_days(kind: str, on_error: str = "stop") -> Iterator[Operations]:
    do = Operations(kind, on_error)
    try:
        days_in_time(do)
        yield do
        do.way_out()
    finally:
        do.close()


def test_a_reseeded_state_does_not_begin_with_another_bronze():
    with after_some_days("counts") as do:
        do.rescale(None, buckets=3)
        do.harmed = True
        begin_anew(do.world)
        rows = [row for commit in do.world.commits for row in commit.rows]
        do.world.commits.clear()
        for new in ([*rows, Landed("b", do.world.now_us, 1)], [Landed("a", do.world.now_us, 1)]):
            do.pass_time(30)
            do.world.ingest(new)
        with refused_until(f"reseed {do.stream.name} --recompute --apply"):
            drain(do.world.engine, do.world.lake, do.stream)
        reseed(do.world.engine, do.world.lake, do.stream, ReseedOptions(recompute=True))
        drain(do.world.engine, do.world.lake, do.stream)
        do.auditor.check()


def test_a_table_that_was_cared_for_and_then_idle_is_still_recorded_when_its_log_is_cleaned():
    with after_some_days("counts_per_key") as do:
        table = DeltaTable(do.world.lake.table(do.stream.name))
        do.optimize("table")
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        do.clean_log("table")
        assert table_coverage(do.world.lake, do.stream).is_right


def test_a_checkpoint_of_another_life_with_the_same_numbers_is_refused(tmp_path):
    with open_world() as world:
        stream, root = world.streams["counts"], Path(world.lake.root)
        checkpoint = world.lake.checkpoint(stream.name, 2)

        def live(key: str) -> None:
            world.pass_time(timedelta(hours=1))
            world.ingest([Landed(key, world.now_us, 1)])
            drain(world.engine, world.lake, stream)

        def reseed_and_live(key: str) -> None:
            reseed(world.engine, world.lake, stream, ReseedOptions(recompute=True))
            live(key)

        live("a")
        shutil.copytree(root, tmp_path / "before")
        reseed_and_live("b")
        shutil.move(checkpoint, tmp_path / "of another life")
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "before", root)
        reseed_and_live("c")
        shutil.rmtree(checkpoint)
        shutil.copytree(tmp_path / "of another life", checkpoint)
        with refused("of_other_times", command=f"./stateful reseed {stream.name} --apply"):
            live("a")
        reseed(world.engine, world.lake, stream, ReseedOptions())
        live("a")
        assert table_coverage(world.lake, stream).is_right
