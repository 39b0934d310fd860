"""`ops/erasures` is lost, or older, while an erasure is open: it is known by bronze, and goes on."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from include.care.check_checkpoint import check_checkpoint
from include.care.set_aside import apply_set_aside, plan_set_aside
from include.coverage.table_coverage import table_coverage
from include.lake.paths import LakeError
from include.landing.erasures import erasures_of, why_wait
from include.landing.ingest import prepare
from tests.simulator.erased import (
    check_erased,
    cut_off_before,
    forget,
    is_in_bronze,
    keep_copy,
    lived,
    lived_with_late_rows,
    put_back,
    take,
)
from tests.simulator.steps import run
from tests.simulator.stream_files import KINDS
from tests.simulator.world import MINUTE_US, World

# Where it is cut off, and whether there is a record of one before it.
CUT_OFF = [
    ("erase_rows", False),
    ("forget_history", True),
    ("_make_anew", False),
    ("_make_anew", True),
    ("_without_past", False),
]


@pytest.mark.parametrize(("step", "is_older"), CUT_OFF)
def test_all_wait_and_it_goes_on(world, tmp_path, monkeypatch, step, is_older):
    if is_older:  # there was one before, of another key
        take(world, [("z", 0, 1)])
        forget(world, tmp_path, "z")
    lived(world)
    keep_copy(world, tmp_path)
    cut_off_before(world, tmp_path, step, monkeypatch)
    lose(world)
    if is_older:
        put_back(world, tmp_path, "ops/erasures")
    assert_all_wait(world)
    forget(world, tmp_path)
    check_erased(world, *(["z"] if is_older else []))
    assert [erasure.is_done for erasure in erasures_of(world.lake, "sent")] == [True] * (
        1 + is_older
    )
    assert why_wait(world.lake, "sent", "ingestion") is None


def lose(world: World) -> None:
    shutil.rmtree(Path(world.lake.root, "ops/erasures"))


def assert_all_wait(world: World) -> None:
    with pytest.raises(LakeError, match=r"`\./stateful erase sent KEY --apply`"):
        prepare(world.lake, world.source, None)
    for kind in KINDS:
        with pytest.raises(LakeError, match=r"`\./stateful erase sent KEY --apply`"):
            run(world, kind)
        stream = world.streams[kind]
        assert not table_coverage(world.lake, stream).is_right
        found = {f.finding: f.severity for f in check_checkpoint(world.lake, stream).findings}
        assert found["erasure_unfinished"] == "error", kind


def test_setting_its_records_aside_does_not_give_it_up(world, tmp_path, monkeypatch):
    lived(world)
    cut_off_before(world, tmp_path, "forget_history", monkeypatch)
    set_aside(world, tmp_path, "ops/erasures")
    assert_all_wait(world)
    forget(world, tmp_path)
    check_erased(world)


def test_it_is_given_up_with_its_bronze(world, tmp_path, monkeypatch):
    lived(world)
    cut_off_before(world, tmp_path, "erase_rows", monkeypatch)
    with pytest.raises(
        LakeError, match=r"give it up: `\./stateful set-aside ops/erasures --apply`"
    ):
        set_aside(world, tmp_path, "bronze/sent")
    set_aside(world, tmp_path, "ops/erasures")
    set_aside(world, tmp_path, "bronze/sent")
    take(world, [("a", MINUTE_US, 1)])
    assert not is_in_bronze(world)


def set_aside(world: World, tmp_path: Path, name: str) -> None:
    """And out of the lake, as the next erasure asks for."""
    apply_set_aside(world.lake, plan_set_aside(world.lake, [name], datetime.now(UTC)))
    shutil.move(Path(world.lake.root, "set_aside"), tmp_path / name.replace("/", "-"))


def test_one_that_is_done_is_not_begun_again(world, tmp_path):
    lived_with_late_rows(world)
    forget(world, tmp_path)
    lose(world)
    take(world, [("a", MINUTE_US, 1)])
    for kind in KINDS:
        run(world, kind)
    check_erased(world)
