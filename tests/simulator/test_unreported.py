"""A run that dies before it is recorded has another follow it, whatever earlier clocks have shown."""

import random
from datetime import timedelta

import pytest

from include import job
from include.stream.open_stream import has_waiting_rows
from tests.deaths import KilledError, die
from tests.simulator.oracle import Landed
from tests.simulator.steps import land, run, some_rows
from tests.simulator.world import open_world

KIND = "counts"


@pytest.mark.parametrize("days_ahead", [0, 400])
def test_a_run_that_died_unrecorded_is_followed_by_another(days_ahead: int):
    rng = random.Random(3)
    with open_world(quick=True) as world:
        land(world, some_rows(rng), minutes=60)
        right_us = world.now_us
        world.now_us += timedelta(days=days_ahead) // timedelta(microseconds=1)
        world.pass_time(timedelta(hours=1))
        world.ingest([Landed("a", right_us + 10, 1)])
        run(world, KIND)
        assert not has_waiting_rows(world.lake, world.streams[KIND])
        world.now_us = right_us
        land(world, some_rows(rng), minutes=120)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "append_ops", die)
            with pytest.raises(KilledError):
                run(world, KIND)
        assert has_waiting_rows(world.lake, world.streams[KIND])
        run(world, KIND)
        assert not has_waiting_rows(world.lake, world.streams[KIND])
