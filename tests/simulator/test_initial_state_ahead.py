"""An initial state of an instant that bronze has not settled yet, and a savepoint from before it."""

import json
from pathlib import Path

import pytest

from include.fold.admission import instant_of
from include.stream.reseed_plan import ReseedOptions
from include.stream.stream_status import stream_status
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from tests.simulator.steps import land, run
from tests.simulator.world import MINUTE_US, World


@pytest.fixture
def as_of_us(world: World) -> int:
    """`a` was 3 as of then: of its two rows the first is one of these three."""
    as_of_us = world.now_us + 60 * MINUTE_US
    path = Path(world.lake.initial_state_file(world.streams["counts"].name))
    path.parent.mkdir()
    keys = [{"key": "a", "state": {"n": 3}}]
    path.write_text(json.dumps({"as_of": instant_of(as_of_us).isoformat(), "keys": keys}))
    land(world, [("a", 0, 1)], minutes=59)
    world.now_us = as_of_us + 1  # it is known by then
    run(world, "counts")  # it has settled the time until before `as_of`, and writes a savepoint
    for key in "ab":
        land(world, [(key, 0, 1)], minutes=60)
    run(world, "counts")
    return as_of_us


def test_a_reseed_folds_no_rows_that_it_stands_for(world: World, as_of_us: int):
    stream, before = world.streams["counts"], world.table("counts")
    reseed(world.engine, world.lake, stream, ReseedOptions())
    judged = stream_status(world.lake, stream)
    assert judged.coverage.live_is_right
    assert world.table("counts") == before


def test_nor_does_a_backfill(world: World, as_of_us: int):
    before = world.table("counts")
    start, until = (instant_of(as_of_us + minutes * MINUTE_US) for minutes in (-5, 90))
    recompute(world.engine, world.lake, world.streams["counts"], start, until)
    assert world.table("counts") == before
