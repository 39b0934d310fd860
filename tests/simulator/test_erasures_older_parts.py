"""An erased key does not come back with a part of the lake that is older than its erasure."""

from collections.abc import Iterator

import pytest

from include.plans.reseed_options import ReseedOptions
from spark_jobs.reseed_stream import reseed
from tests.simulator.erased import (
    cut_off_before,
    forget,
    keep_copy,
    left,
    lived_with_late_rows,
    put_back,
)
from tests.simulator.steps import table_of
from tests.simulator.stream_files import KINDS
from tests.simulator.world import World, open_world


@pytest.fixture
def world() -> Iterator[World]:
    with open_world(quick=False) as made:
        yield made


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
