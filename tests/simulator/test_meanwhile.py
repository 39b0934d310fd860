"""Others write to a lake while a job of ours works: between its look and its reading, or its commit."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.fold.admission import EPOCH, instant_of
from include.ingest import ingest_log
from include.ingest.ingest import ingest
from include.ingest.ingest_log import Ingestion
from include.lake.errors import LakeError
from include.stream.rebuild_plan import RebuildOptions
from include.stream.stream_status import stream_status
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.run_stream import drain
from tests.refused import refused
from tests.simulator import writes
from tests.simulator.auditor import Auditor
from tests.simulator.damage import append_again
from tests.simulator.operations import Operations
from tests.simulator.oracle import FAILS
from tests.simulator.sequences import one_more_run, ordinary_days
from tests.simulator.steps import HOUR, JOBS, land, run
from tests.simulator.test_changed_bronze import appended, deleted, updated
from tests.simulator.world import MINUTE_US, World, open_world

KIND = "counts"


def emptied(quarantine: str) -> None:
    DeltaTable(quarantine).delete()


def land_file(world: World, number: int) -> None:
    """Two events and a line that is none."""
    world.pass_time(HOUR)
    folder = Path(world.lake.landing("sent"))
    folder.mkdir(parents=True, exist_ok=True)
    sent_at = instant_of(world.now_us).isoformat()
    rows = [{"key": key, "value": 1, "sent_at": sent_at} for key in "ab"]
    lines = [*map(json.dumps, rows), "garbage", ""]
    (folder / f"{number}.jsonl").write_text("\n".join(lines))


def meanwhile(job: Callable[[], object], at: int, harm: Callable[[], None]) -> bool:
    """`job`, and `harm` just before its write number `at`; whether it came to that."""
    happened = []

    def others() -> None:
        # Their writes are none of the job's.
        counting, writes._current = writes._current, None
        harm()
        writes._current = counting
        happened.append(at)

    with writes.killing(at, others):
        job()
    return bool(happened)


@pytest.mark.parametrize(
    ("table", "harm"),
    [("bronze", appended), ("bronze", deleted), ("quarantine", appended), ("quarantine", emptied)],
)
@pytest.mark.parametrize("at", [2, 5])
def test_what_others_write_while_ingestion_works_is_not_taken_for_ours(table, harm, at):
    with open_world() as world:
        land_file(world, 1)
        ingest(world.lake, world.source, interval_end=EPOCH)
        land_file(world, 2)
        path = f"{world.lake.root}/{table}/sent"
        try:
            assert meanwhile(
                lambda: ingest(world.lake, world.source, interval_end=EPOCH), at, lambda: harm(path)
            )
        except Exception:  # noqa: BLE001 (loud is as good)
            return
        with refused("of_other_times"):
            Ingestion(world.lake, world.source)


@pytest.mark.parametrize(
    "at", [pytest.param(at, marks=pytest.mark.full if at % 6 else ()) for at in range(1, 13)]
)
def test_what_others_write_to_dead_letters_while_a_run_works_is_not_taken_for_ours(at: int):
    do = Operations(KIND, on_error="dead_letter")
    try:
        do.deploy("e")
        ordinary_days(do, 2)
        one_more_run(do, "a", FAILS)
        do.land_in_time("b", [1], 1)
        do.pass_time(30)
        world, dead_letters = do.world, Path(do.world.lake.dead_letters(do.stream.name))
        try:
            run_meanwhile = partial(drain, world.engine, world.lake, do.stream)
            assert meanwhile(run_meanwhile, at, partial(append_again, dead_letters))
        except LakeError:
            return
        told = [finding.finding for finding in stream_status(world.lake, do.stream).findings]
        assert "table_changed" in told
    finally:
        do.close()


@pytest.mark.parametrize("harm", [deleted, updated])
@pytest.mark.parametrize("job", ["restate", "rebuild"])
def test_bronze_that_others_change_between_a_jobs_look_and_its_reading(job, harm):
    """Put back as the finding says, the table lacks what was read otherwise, and counts as right."""
    with open_world() as world:
        auditor = Auditor(world, KIND)
        for _ in range(3):
            land(world, [("a", 0, 1), ("b", MINUTE_US, 1)], minutes=60)
            run(world, KIND)
        bronze, copy = world.lake.bronze("sent"), Path(world.lake.root).parent / "copy"
        looks = ingest_log.how_bronze_changed

        def look(*given):
            told = looks(*given)
            if not copy.exists():
                shutil.copytree(bronze, copy)
                harm(bronze)
            return told

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ingest_log, "how_bronze_changed", look)
            try:
                JOBS[job](world, KIND)
            except Exception:  # noqa: BLE001 (loud is as good)
                return
        assert looks(world.lake, "sent") is not None
        shutil.rmtree(bronze)
        shutil.copytree(copy, bronze)
        auditor.check()
        land(world, [("c", 0, 1)], minutes=60)
        run(world, KIND)
        auditor.check()


def read_what_is_gone_then(world: World, rows: int, tried_before: bool) -> None:
    """A run reads a commit of others, and what ingestion adds in its place has its number."""
    for _ in range(3):
        land(world, [("a", 0, 1), ("b", MINUTE_US, 1)], minutes=60)
        run(world, KIND)
    bronze, copy = world.lake.bronze("sent"), Path(world.lake.root).parent / "copy"
    shutil.copytree(bronze, copy)
    appended(bronze)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest_log, "how_bronze_changed", lambda *_: None)
        run(world, KIND)
    shutil.rmtree(bronze)
    shutil.copytree(copy, bronze)
    if tried_before:
        with pytest.raises(LakeError):
            run(world, KIND)
    land(world, [("c", 0, 1), ("d", 0, 1)][:rows], minutes=60)


@pytest.mark.parametrize(("rows", "tried_before"), [(1, True), (2, False)])
def test_a_commit_of_others_that_a_run_has_read_and_that_is_gone_then(rows, tried_before):
    with open_world() as world:
        auditor = Auditor(world, KIND)
        read_what_is_gone_then(world, rows, tried_before)
        with refused("of_other_times"):
            run(world, KIND)
        auditor.check()
        assert not stream_status(world.lake, world.streams[KIND]).is_right
        rebuild(world.engine, world.lake, world.streams[KIND], RebuildOptions())
        run(world, KIND)
        assert stream_status(world.lake, world.streams[KIND]).is_right
        auditor.check()
