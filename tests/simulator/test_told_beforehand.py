"""What plans say, against what then happens."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from include.amend.clock_repair_plan import plan_clock_repair
from include.fold.admission import instant_of
from include.ingest.amendments import begin_repair
from include.lake.errors import LakeError
from include.lake.stream_result import complete_until
from include.stream.bronze_pin import pin_bronze
from include.stream.open_stream import open_stream
from include.stream.plan_recompute import plan_backfill, plan_recompute
from include.stream.reseed_plan import ReseedOptions, plan_reseed
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from tests.refused import refused_until
from tests.simulator.oracle import Landed
from tests.simulator.steps import land, lived, run
from tests.simulator.world import MINUTE_US, World


def poisoned(world: World) -> int:
    """The machine's clock is a day ahead, for once; when that was."""
    land(world, [("a", 0, 1)])
    right_us = world.now_us
    world.pass_time(timedelta(days=1))
    world.ingest([Landed("far", world.now_us, 1)])
    world.now_us = right_us
    for _ in range(3):
        land(world, [("a", 0, 1), ("b", 0, 1)])
    return right_us


def told_late(world: World, kind: str, right_us: int) -> int:
    plan = plan_clock_repair(world.lake, world.source, instant_of(right_us))
    return plan.late[world.streams[kind].name]


def test_rows_that_an_initial_state_stands_for_are_not_told_of_as_late(world: World):
    right_us = poisoned(world)
    path = Path(world.lake.initial_state_file(world.streams["counts"].name))
    path.parent.mkdir()
    path.write_text(json.dumps({"as_of": instant_of(world.now_us).isoformat(), "keys": []}))
    run(world, "counts")
    assert told_late(world, "counts", right_us) == 2  # those of `as_of` itself


def test_while_a_clock_is_repaired_plans_are_refused_in_the_words_of_their_jobs(world: World):
    lived(world, "counts")
    lake, stream, options = world.lake, world.streams["counts"], ReseedOptions()
    until = complete_until(lake, stream.name)
    interval = (until - timedelta(hours=1), until)
    pin = pin_bronze(lake, stream.source)
    to_us = pin.watermark_us - MINUTE_US
    begin_repair(lake, world.source, to_us)
    for job, *plans in (
        (
            lambda: reseed(world.engine, lake, stream, options),
            lambda: plan_reseed(lake, stream, options),
        ),
        (
            lambda: recompute(world.engine, lake, stream, *interval),
            lambda: plan_recompute(open_stream(lake, stream), *interval),
            lambda: plan_backfill(open_stream(lake, stream), *interval),
        ),
    ):
        with refused_until("repair-clock sent") as refused:
            job()
        for plan in plans:
            with pytest.raises(LakeError) as planned:
                plan()
            assert str(planned.value) == str(refused.value)
