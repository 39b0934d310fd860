"""A key is erased without a JVM: what is left is as if it had never been, killed before any write."""

from pathlib import Path

import pytest

from include.amend import erase_rows
from include.amend import erase_rows as rows_module
from include.amend.erase_rows import erased_key
from include.amend.plans import plan_erasure
from include.ingest.amendments import amendments_of
from include.lake.errors import SettingsError
from include.stream.rebuild_plan import RebuildOptions
from spark_jobs.rebuild_stream import rebuild
from tests.amend.scan import files_with
from tests.refused import refused_until
from tests.simulator.erased import (
    SECRET,
    STREAM,
    check_erased,
    cut_off_before,
    forget,
    lived,
    lived_with_late_rows,
)
from tests.simulator.steps import land, run
from tests.simulator.stream_files import KINDS
from tests.simulator.world import MINUTE_US, open_world
from tests.simulator.writes import killed_at, write_point, writes_of


def test_nothing_of_a_key_is_left_and_all_else_goes_on(world):
    lived(world)
    there = files_with(Path(world.lake.root), [SECRET.encode()])
    parts = {name.partition("/")[0] for name in there}
    told = {"landing", "bronze", "quarantine", "dead_letters", "ops"}
    assert parts >= told | {"tables", "checkpoints", "savepoints"}
    forget(world)
    check_erased(world)
    (certificate,) = amendments_of(world.lake, "sent").known
    assert certificate.is_done
    assert certificate.is_of({"key": SECRET})
    assert not certificate.is_of({"key": "a"})
    known = (certificate.rows_bronze, certificate.rows_quarantined, certificate.files_landed)
    assert known == (10, 1, 1)

    land(world, [("a", 0, 1), ("b", MINUTE_US, 2)], minutes=90)
    for kind in KINDS:
        run(world, kind)
    check_erased(world)
    with pytest.raises(SettingsError):
        plan_erasure(world.lake, erased_key(STREAM, SECRET))


def test_streams_and_ingestion_wait_for_an_erasure_that_was_cut_off(written, world):
    lived(world)
    bronze = next(n for n, name in enumerate(written, 1) if "bronze/sent" in name)
    assert killed_at(bronze + 1, lambda: forget(world))
    for kind in KINDS:
        with refused_until("erase sent KEY --apply"):
            run(world, kind)
    with pytest.raises(SettingsError):
        plan_erasure(world.lake, erased_key(STREAM, "a"))
    for number in (15, 25):  # in the rebuilds that follow
        assert killed_at(number, lambda: forget(world))
    forget(world)
    check_erased(world)


def test_a_rebuild_while_an_erasure_is_open_begins_with_no_state_of_before(world, monkeypatch):
    """As many rows have come late as are erased: by its count a savepoint with the key is valid."""
    lived_with_late_rows(world)
    cut_off_before(world, "rebuild_amended", monkeypatch)
    for kind in KINDS:
        rebuild(world.engine, world.lake, world.streams[kind], RebuildOptions())
        table = world.table(kind)
        assert SECRET not in str(table), kind
    forget(world)
    check_erased(world)


@pytest.fixture
def written() -> list[str]:
    """The writes of an erasure, of a world of its own: to be asked for before `world`."""
    with open_world() as world, pytest.MonkeyPatch.context() as patch:
        count_deletions(patch)
        lived(world)
        return writes_of(lambda: forget(world)).names


def count_deletions(patch: pytest.MonkeyPatch) -> None:
    """Count deletions of files as writes, too."""
    for module, name in (
        (rows_module, "_delete_landed"),
        (erase_rows, "_clean_log"),
        (erase_rows, "_delete_files"),
    ):
        function = getattr(module, name)

        def counted(*args, function=function, name=name):
            write_point(name)
            return function(*args)

        patch.setattr(module, name, counted)


@pytest.mark.full
def test_killed_before_any_of_its_writes_and_repeated_it_comes_to_the_same(written, monkeypatch):
    count_deletions(monkeypatch)
    for number in range(1, len(written) + 1):
        with open_world() as world:
            lived(world)
            assert killed_at(number, lambda world=world: forget(world))
            if not any(erasure.is_done for erasure in amendments_of(world.lake, "sent").known):
                forget(world)
            check_erased(world)
