"""A key is erased without a JVM: what is left is as if it had never been, killed before any write."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.care.check_checkpoint import check_checkpoint
from include.coverage.table_coverage import table_coverage
from include.data_checks import Check, DataCheckError
from include.erase import erase_rows as rows_module
from include.erase import history
from include.erase.erase_plan import plan_erasure
from include.erase.erased_key import erased_key
from include.lake.ops import read_ops
from include.lake.paths import LakeError
from include.landing.erasures import erasures_of
from include.plans.reseed_options import ReseedOptions
from include.settings import SettingsError
from spark_jobs import erase_key
from spark_jobs.erase_key import erase
from spark_jobs.reseed_stream import reseed
from tests.erase.scan import files_with
from tests.simulator.steps import all_rows, land, run, some_rows, table_of
from tests.simulator.stream_files import KINDS
from tests.simulator.world import MINUTE_US, World, open_world
from tests.simulator.writes import killed_at, write_point, writes_of

SECRET = "who-is-to-be-forgotten-0123456789"
STREAM = "sim_counts"


@pytest.fixture
def world() -> Iterator[World]:
    # Tables that stay open would ask for files of a log that is gone.
    with open_world(quick=False) as made:
        yield made


def lived(world: World, seed: int = 3) -> None:
    """Three commits, in each of which the key has rows, the newest of all among them."""
    rng = random.Random(seed)
    for _ in range(3):
        own = [(SECRET, minutes * MINUTE_US, 2) for minutes in (0, 20, 70)]
        land(world, some_rows(rng) + own)
        for kind in KINDS:
            run(world, kind)


def forget(world: World, tmp: Path) -> None:
    erase(world.engine, world.lake, erased_key(STREAM, SECRET), tmp)


def left(world: World):
    return [row for row in all_rows(world) if row.key != SECRET]


def check_erased(world: World) -> None:
    """No byte of it, and all tables are what the oracle says of the rows that are left."""
    assert files_with(Path(world.lake.root), [SECRET.encode()]) == set()
    bronze = DeltaTable(world.lake.bronze("sent"))
    assert bronze.metadata().configuration["delta.appendOnly"] == "true"
    for kind in KINDS:
        assert world.table(kind) == table_of(world, kind, left(world)), kind
        stream = world.streams[kind]
        judged = table_coverage(world.lake, stream)
        assert (judged.distrust, judged.coverage.wrong) == (None, ()), kind
        found = [f.finding for f in check_checkpoint(world.lake, stream).findings]
        assert not {"table_changed", "table_not_right"} & set(found), found


def test_nothing_of_a_key_is_left_and_all_else_goes_on(world, tmp_path):
    lived(world)
    there = files_with(Path(world.lake.root), [SECRET.encode()])
    parts = {name.partition("/")[0] for name in there}
    assert parts >= {"bronze", "tables", "checkpoints", "savepoints"}
    forget(world, tmp_path)
    check_erased(world)
    (certificate,) = erasures_of(world.lake, "sent")
    assert certificate.is_done
    assert certificate.is_of({"key": SECRET})
    assert not certificate.is_of({"key": "a"})
    row = read_ops(world.lake, "erasures").to_pylist()[0]
    assert row["rows_bronze"] == 9

    land(world, [("a", 0, 1), ("b", MINUTE_US, 2)], minutes=90)
    for kind in KINDS:
        run(world, kind)
    check_erased(world)
    with pytest.raises(SettingsError, match="no row of that key: it was erased"):
        plan_erasure(world.lake, erased_key(STREAM, SECRET))


def test_streams_and_ingestion_wait_for_an_erasure_that_was_cut_off(world, tmp_path):
    lived(world)
    before = writes_of_erasure()
    bronze = next(n for n, name in enumerate(before, 1) if "bronze/sent" in name)
    assert killed_at(bronze + 1, lambda: forget(world, tmp_path))
    for kind in KINDS:
        with pytest.raises(LakeError, match=r"`./stateful erase sent KEY --apply`"):
            run(world, kind)
    with pytest.raises(SettingsError, match="of another key of sent was begun"):
        plan_erasure(world.lake, erased_key(STREAM, "a"))
    for number in (15, 25):  # in the reseeds that follow
        assert killed_at(number, lambda: forget(world, tmp_path))
    forget(world, tmp_path)
    check_erased(world)


def test_a_reseed_while_an_erasure_is_open_begins_with_no_state_of_before(
    world, tmp_path, monkeypatch
):
    """As many rows have come late as are erased: by its count a savepoint with the key is clean."""
    land(world, [("a", 200 * MINUTE_US, 1), (SECRET, 190 * MINUTE_US, 2), ("a", 0, 1)])
    for kind in KINDS:
        run(world, kind)
    land(world, [("b", 230 * MINUTE_US, 3), ("a", 0, 1)])
    for kind in KINDS:
        run(world, kind)
    with monkeypatch.context() as patch:
        patch.setattr(erase_key, "_make_anew", cut_off)
        with pytest.raises(KeyboardInterrupt):
            forget(world, tmp_path)
    for kind in KINDS:
        reseed(world.engine, world.lake, world.streams[kind], ReseedOptions())
        table = world.table(kind)
        assert SECRET not in str(table), kind
    forget(world, tmp_path)
    check_erased(world)


def cut_off(*_: object) -> None:
    raise KeyboardInterrupt


def writes_of_erasure() -> list[str]:
    with open_world(quick=False) as world, pytest.MonkeyPatch.context() as patch:
        count_deletions(patch)
        lived(world)
        return writes_of(lambda: forget(world, Path(world.lake.root, "no-airflow"))).names


def count_deletions(patch: pytest.MonkeyPatch) -> None:
    """What deletes files is a write, too."""
    for module, name in (
        (rows_module, "_delete_landed"),
        (history, "_clean_log"),
        (history, "_delete_files"),
    ):
        function = getattr(module, name)

        def counted(*args, function=function, name=name):
            write_point(name)
            return function(*args)

        patch.setattr(module, name, counted)


@pytest.mark.full
def test_killed_before_any_of_its_writes_and_repeated_it_comes_to_the_same(monkeypatch, tmp_path):
    writes = len(writes_of_erasure())
    count_deletions(monkeypatch)
    for number in range(1, writes + 1):
        with open_world(quick=False) as world:
            lived(world)
            assert killed_at(number, lambda world=world: forget(world, tmp_path))
            if not any(erasure.is_done for erasure in erasures_of(world.lake, "sent")):
                forget(world, tmp_path)
            check_erased(world)


@pytest.mark.full
def test_an_erasure_that_a_check_stops_says_that_it_is_the_erasure_that_goes_on(world, tmp_path):
    lived(world)
    world.configure("counts", checks=(Check(name="none", each_row="amount < 0"),))
    with pytest.raises(
        DataCheckError, match=r"not finished: finish it, .*`./stateful erase sent KEY --apply`"
    ):
        forget(world, tmp_path)
    with pytest.raises(LakeError, match="erase sent KEY --apply"):
        run(world, "counts")
    world.configure("counts", checks=())
    forget(world, tmp_path)
    check_erased(world)
