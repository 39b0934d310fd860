"""The path of a field that was declared late changes: older rows are other events from then on."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from include.coverage.table_coverage import find_coverage
from include.fold.admission import EPOCH, instant_of
from include.landing.ingest import ingest
from include.plans.reseed_plan import ReseedOptions
from include.streams import sources
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from tests.simulator.shapes import FLAT
from tests.simulator.steps import run
from tests.simulator.world import MINUTE_US, START_US, World, open_world

START, UNTIL = instant_of(START_US), instant_of(START_US + 150 * MINUTE_US)


@pytest.fixture
def world() -> Iterator[World]:
    """One row of `amount`, which is no field, and then two of `value`, which is."""
    with open_world(quick=False, shape=replace(FLAT, late_value=True)) as world:
        land(world, "0.jsonl", amount=1)
        world._declare_value()
        world.deploy("counts", "c")
        land(world, "1.jsonl", value=2)
        land(world, "2.jsonl", value=2)
        run(world, "counts")
        yield world


def land(world: World, name: str, **fields: int) -> None:
    world.pass_time(timedelta(hours=1))
    row = {"key": "a", "sent_at": instant_of(world.now_us).isoformat(), **fields}
    folder = Path(world.lake.landing("sent"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(row))
    ingest(world.lake, world.source, interval_end=EPOCH)


def move(world: World, path: str) -> None:
    fields = (replace(f, path=path) if f.name == "value" else f for f in world.source.fields)
    world.source = replace(world.source, fields=tuple(fields))
    sources.SOURCES = (world.source,)


def told(world: World) -> list[str]:
    return [found.finding for found in find_coverage(world.lake, world.streams["counts"])]


def test_rows_of_before_another_path_are_told_of_until_they_are_computed_anew(world: World):
    assert told(world) == []
    move(world, "amount")
    land(world, "3.jsonl", amount=2)
    run(world, "counts")
    assert told(world) == ["table_not_right"]
    stream = world.streams["counts"]
    recompute(world.engine, world.lake, stream, START, UNTIL)
    assert told(world)  # what the state has of them is in the rows behind
    reseed(world.engine, world.lake, stream, ReseedOptions())
    land(world, "4.jsonl", amount=2)
    run(world, "counts")
    assert told(world) == []


def test_a_path_that_stays_changes_nothing(world: World):
    land(world, "3.jsonl", value=2)
    run(world, "counts")
    assert told(world) == []
