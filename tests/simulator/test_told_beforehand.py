"""What plans say, against what then happens."""

from datetime import timedelta

import pytest

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
from tests.simulator.steps import lived
from tests.simulator.world import MINUTE_US, World


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
