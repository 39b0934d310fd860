"""Reseeds and recomputes without a JVM come to what the oracle says, killed before any write."""

from collections import Counter
from datetime import timedelta

import pytest

from include.stream.reseed_plan import ReseedOptions
from spark_jobs.reseed_stream import reseed
from tests.refused import refused_until
from tests.simulator import oracle
from tests.simulator.steps import (
    all_rows,
    land,
    run,
)
from tests.simulator.world import MINUTE_US


@pytest.mark.parametrize(
    "setting",
    [{"buckets": 5}, {"state_partitions": 3}, {"watermark_delay": timedelta(hours=2)}],
    ids=["buckets", "state_partitions", "watermark_delay"],
)
def test_the_reseed_that_a_refused_setting_names_is_enough(world, setting):
    land(world, [("a", 0, 1), ("b", MINUTE_US, 2)])
    run(world, "counts")
    stream = world.configure("counts", **setting)
    land(world, [("a", 0, 1), ("d", 0, 1)], minutes=300)
    with refused_until(f"reseed {stream.name}"):
        run(world, "counts")
    reseed(world.engine, world.lake, stream, ReseedOptions())
    run(world, "counts")
    until_us = oracle.until_us(world.commits, stream.watermark_delay // timedelta(microseconds=1))
    rows = Counter(oracle.outputs("counts", "a", all_rows(world), until_us))
    assert rows <= world.table("counts")  # what was settled under the shorter delay stays
    assert rows
