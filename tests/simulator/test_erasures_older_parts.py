"""An erased key does not come back with a part of the lake that is older than its erasure."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from include.care.check_checkpoint import check_checkpoint
from include.care.set_aside import apply_set_aside, plan_set_aside
from include.lake.paths import LakeError
from include.landing.erasures import erasures_of
from include.plans.reseed_options import ReseedOptions
from spark_jobs.reseed_stream import reseed
from tests.simulator.erased import (
    check_erased,
    cut_off_before,
    forget,
    is_in_bronze,
    keep_copy,
    left,
    lived,
    lived_with_late_rows,
    put_back,
    take,
)
from tests.simulator.steps import run, table_of
from tests.simulator.stream_files import KINDS
from tests.simulator.world import MINUTE_US, World


@pytest.mark.parametrize("is_open", [True, False])
def test_no_reseed_begins_with_a_savepoint_of_before_an_erasure(
    world, tmp_path, monkeypatch, is_open
):
    """By its count one with the key is clean: as many rows have come late as were erased."""
    lived_with_late_rows(world)
    keep_copy(world, tmp_path)
    if is_open:
        cut_off_before(world, tmp_path, "_make_anew", monkeypatch)
        put_back(world, tmp_path, "ops/savepoints")
    else:
        forget(world, tmp_path)
        put_back(
            world, tmp_path, "ops/savepoints", *(f"savepoints/{s.name}" for s in streams(world))
        )
    for stream in streams(world):
        reseed(world.engine, world.lake, stream, ReseedOptions())
    if is_open:
        forget(world, tmp_path)
    for kind in KINDS:
        assert world.table(kind) == table_of(world, kind, left(world)), kind


def streams(world: World):
    return [world.streams[kind] for kind in KINDS]


@pytest.mark.parametrize("step", ["_make_anew", "_without_past"])
@pytest.mark.parametrize("with_seals", [True, False])
def test_no_erasure_is_finished_while_an_older_bronze_has_the_key(
    world, tmp_path, monkeypatch, step, with_seals
):
    lived_with_late_rows(world)
    keep_copy(world, tmp_path)
    cut_off_before(world, tmp_path, step, monkeypatch)
    put_back(world, tmp_path, "bronze/sent", *(["ops/tables"] if with_seals else []))
    assert is_in_bronze(world)
    if with_seals:
        forget(world, tmp_path)
        check_erased(world)
        return
    with pytest.raises(LakeError, match="put the table back from a copy that is not older first"):
        forget(world, tmp_path)
    assert not any(erasure.is_done for erasure in erasures_of(world.lake, "sent"))


def test_a_stream_of_which_no_generation_is_known_any_more_is_made_anew_before_an_erasure(
    world, tmp_path
):
    lived(world)
    shutil.rmtree(Path(world.lake.root, "ops/generations"))
    for stream in streams(world):
        shutil.rmtree(Path(world.lake.root, "checkpoints", stream.name))
    with pytest.raises(LakeError, match=r"has no generation of .* reseed .* --recompute --apply"):
        forget(world, tmp_path)
    for stream in streams(world):
        reseed(world.engine, world.lake, stream, ReseedOptions(recompute=True))
    forget(world, tmp_path)
    check_erased(world)


def test_seals_of_before_an_erasure_are_the_older_part_and_bronze_is_not_blamed(world, tmp_path):
    lived_with_late_rows(world)
    keep_copy(world, tmp_path)
    forget(world, tmp_path)
    put_back(world, tmp_path, "ops/tables")
    what = r"ops/tables .* older than an erasure .* `./stateful set-aside ops/tables --apply`"
    with pytest.raises(LakeError, match=what):
        take(world, [("a", 0, 1)])
    stream = world.streams["counts"]
    found = check_checkpoint(world.lake, stream).findings
    (finding,) = (each for each in found if each.finding == "bronze_changed")
    assert "set-aside ops/tables" in finding.action
    assert "set-aside bronze" not in finding.action
    apply_set_aside(world.lake, plan_set_aside(world.lake, ["ops/tables"], datetime.now(UTC)))
    for one in streams(world):
        reseed(world.engine, world.lake, one, ReseedOptions())
    take(world, [("a", 0, 1), ("b", MINUTE_US, 2)])
    for kind in KINDS:
        run(world, kind)
        assert world.table(kind) == table_of(world, kind, left(world)), kind


def test_a_bronze_of_before_an_erasure_stops_all_until_the_key_is_erased_again(world, tmp_path):
    lived_with_late_rows(world)
    keep_copy(world, tmp_path)
    forget(world, tmp_path)
    put_back(world, tmp_path, "bronze/sent", "ops/tables")
    assert is_in_bronze(world)
    again = "`./stateful erase sent KEY --apply`"
    for kind, stream in world.streams.items():
        found = {f.finding: f.action for f in check_checkpoint(world.lake, stream).findings}
        assert again in found["bronze_changed"], kind
        with pytest.raises(LakeError, match=again):
            run(world, kind)
        with pytest.raises(LakeError, match=again):
            reseed(world.engine, world.lake, stream, ReseedOptions())
    with pytest.raises(LakeError, match=again):
        take(world, [("b", 0, 1)])
    forget(world, tmp_path)
    check_erased(world)
