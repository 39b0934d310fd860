"""Parts of a lake that are lost, damaged, or put back from one time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.lake.delta_log import lying_aside
from include.stream.rebuild_plan import RebuildOptions
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.run_stream import drain
from tests.refused import refused_until
from tests.simulator.damage import ingest_from_scratch
from tests.simulator.operations import Operations
from tests.simulator.sequences import days_in_time
from tests.simulator.world import Landed


@contextmanager
def after_some_days(kind: str) -> Iterator[Operations]:
    do = Operations(kind)
    try:
        days_in_time(do)
        yield do
        do.mend_by_rebuild()
    finally:
        do.close()


def test_a_rebuilt_state_does_not_begin_with_another_bronze():
    with after_some_days("counts") as do:
        do.rescale(None, buckets=3)
        do.harmed = True
        ingest_from_scratch(do.world)
        rows = [row for commit in do.world.commits for row in commit.rows]
        do.world.commits.clear()
        for new in ([*rows, Landed("b", do.world.now_us, 1)], [Landed("a", do.world.now_us, 1)]):
            do.pass_time(30)
            do.world.ingest(new)
        with refused_until(f"rebuild {do.stream.name} --apply"):
            drain(do.world.engine, do.world.lake, do.stream)
        rebuild(do.world.engine, do.world.lake, do.stream, RebuildOptions())
        drain(do.world.engine, do.world.lake, do.stream)
        do.auditor.check()


def flipped(file: Path) -> None:
    content = file.read_bytes()
    half = len(content) // 2
    file.write_bytes(content[:4] + bytes(byte ^ 0xFF for byte in content[4:half]) + content[half:])


@pytest.mark.parametrize("kind", ["counts", "counts_per_key"])
def test_a_table_that_cannot_be_read_is_moved_aside_and_rebuilt(kind):
    with after_some_days(kind) as do:
        world, stream = do.world, do.stream
        path = world.lake.table(stream.name)
        flipped(Path(path, DeltaTable(path).file_uris()[0].removeprefix("file://")))
        rebuild(world.engine, world.lake, stream, RebuildOptions(full_refresh=True))
        (aside,) = lying_aside(world.lake)
        assert Path(world.lake.root, aside, "tables", stream.name).is_dir()
        do.auditor.check()
