"""Runs without a JVM, shared or killed: each comes to what the oracle says, or the next one does."""

import random
from contextlib import contextmanager
from datetime import timedelta

import pytest

from include import job
from include.lake.lease import hold_lease
from include.lake.ops import read_ops
from include.stream.open_stream import has_waiting_rows, open_stream
from include.stream.record import check_rows_add_up
from spark_jobs.run_stream import drain_others
from tests.deaths import KilledError, die
from tests.simulator.oracle import Landed
from tests.simulator.steps import land, live_table, run, some_rows
from tests.simulator.stream_files import KINDS
from tests.simulator.world import open_world
from tests.simulator.writes import killed_before_each


def test_of_streams_that_share_a_run_each_is_drained_though_another_fails(world):
    land(world, [("ada", 0, 1)])
    streams = [world.streams[kind] for kind in KINDS]
    with hold_lease(world.lake, f"stream-{streams[0].name}"):
        drain_others(world.engine, world.lake, streams, "d1", lambda: None)
    for kind in KINDS[1:]:
        assert world.table(kind) == live_table(world, kind)
    runs = read_ops(world.lake, "runs", {"dag_run_id": "d1"}).to_pylist()
    assert {run["subject"] for run in runs} == {stream.name for stream in streams[1:]}
    # Nor is there anything to do a second time.
    drain_others(world.engine, world.lake, streams[1:], "d2", lambda: None)
    assert read_ops(world.lake, "runs", {"dag_run_id": "d2"}).num_rows == 0


def test_once_the_jvm_has_died_no_stream_fails_that_was_not_begun(world):
    land(world, [("ada", 0, 1)])
    streams = [world.streams[kind] for kind in KINDS]
    begun = iter([streams[0]])

    def make_ready():
        if next(begun, None) is None:
            raise ConnectionRefusedError("by the JVM")

    drain_others(world.engine, world.lake, streams, "d1", make_ready)
    runs = read_ops(world.lake, "runs", {"dag_run_id": "d1"}).to_pylist()
    assert [(run["subject"], run["outcome"]) for run in runs] == [(streams[0].name, "succeeded")]


@pytest.mark.parametrize(
    "kind",
    [kind if kind == "silences" else pytest.param(kind, marks=pytest.mark.full) for kind in KINDS],
)
def test_a_run_killed_before_any_of_its_writes_is_finished_by_the_next(kind, tmp_path):
    rng = random.Random(3)
    rows = [some_rows(rng) for _ in range(3)]
    with open_world() as world:
        land(world, rows[0])
        run(world, kind)
        land(world, rows[1])
        begun = world.copied(tmp_path)

    @contextmanager
    def made():
        with open_world() as world:
            world.go_on(begun)
            yield world

    for world in killed_before_each(made, lambda world: run(world, kind)):
        stream = world.streams[kind]
        # Also where the batch without data was lost, and no row has come since.
        if has_waiting_rows(world.lake, stream):
            run(world, kind)
        assert world.table(kind) == live_table(world, kind)
        land(world, rows[2])
        run(world, kind)
        assert world.table(kind) == live_table(world, kind)
        assert not has_waiting_rows(world.lake, stream)
        opened = open_stream(world.lake, stream)
        check_rows_add_up(world.lake, opened.record, opened.generations.pinned())


KIND = "counts"


@pytest.mark.parametrize("days_ahead", [0, 400])
def test_a_run_that_died_unrecorded_is_followed_by_another(days_ahead: int):
    rng = random.Random(3)
    with open_world() as world:
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
