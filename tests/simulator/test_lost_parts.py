"""Parts of a lake that are lost, damaged, or put back from one time."""

from collections.abc import Iterator
from contextlib import contextmanager

from include.plans.reseed_plan import ReseedOptions
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.refused import refused_until
from tests.simulator.damage import begin_anew
from tests.simulator.operations import Operations
from tests.simulator.sequences import days_in_time
from tests.simulator.world import Landed


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
        with refused_until(f"reseed {do.stream.name} --apply"):
            drain(do.world.engine, do.world.lake, do.stream)
        reseed(do.world.engine, do.world.lake, do.stream, ReseedOptions())
        drain(do.world.engine, do.world.lake, do.stream)
        do.auditor.check()
