"""Rebuilds and restates without a JVM: what they come to, what rebuilds, and what plans say of them."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from include.fold.admission import instant_of
from include.ingest.amendments import begin_set_watermark
from include.lake.generations import complete_until
from include.stream.bronze import newest_bronze
from include.stream.open_stream import open_stream
from include.stream.rebuild_plan import RebuildOptions, plan_rebuild
from include.stream.restate_plan import plan_restate
from include.stream.stream_status import stream_status
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.restate_interval import restate
from tests.refused import refused_until
from tests.simulator.steps import land, lived, run
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
    run(world, "counts")  # it has completed the time until before `as_of`, and writes a savepoint
    for key in "ab":
        land(world, [(key, 0, 1)], minutes=60)
    run(world, "counts")
    return as_of_us


def test_neither_a_backfill_nor_a_rebuild_folds_rows_that_an_initial_state_stands_for(
    world: World, as_of_us: int
):
    stream, before = world.streams["counts"], world.table("counts")
    start, until = (instant_of(as_of_us + minutes * MINUTE_US) for minutes in (-5, 90))
    restate(world.engine, world.lake, stream, start, until)
    assert world.table("counts") == before
    rebuild(world.engine, world.lake, stream, RebuildOptions())
    assert stream_status(world.lake, stream).table_status.live_is_right
    assert world.table("counts") == before


def test_while_a_clock_is_repaired_plans_are_refused_as_their_jobs_are(world: World):
    lived(world, "counts")
    lake, stream, options = world.lake, world.streams["counts"], RebuildOptions()
    until = complete_until(lake, stream.name)
    interval = (until - timedelta(hours=1), until)
    to_us = newest_bronze(lake, stream.source).watermark_us - MINUTE_US
    begin_set_watermark(lake, world.source, to_us)
    for refused in (
        lambda: rebuild(world.engine, lake, stream, options),
        lambda: plan_rebuild(open_stream(lake, stream), options),
        lambda: restate(world.engine, lake, stream, *interval),
        lambda: plan_restate(open_stream(lake, stream), *interval),
    ):
        with refused_until("set-watermark sent"):
            refused()
