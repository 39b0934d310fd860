"""An older bronze with seals as old: runs stop, a backfill does not, and what it lost is called right."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from include.coverage.table_coverage import table_coverage
from include.fold.instants import instant_of
from include.lake.paths import LakeError
from include.landing.ingest import ingest
from include.plans.reseed_options import ReseedOptions
from include.settings import SettingsError
from include.streams import sources
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from tests.simulator.steps import run
from tests.simulator.world import MINUTE_US, SOURCE, START_US, World, open_world

OLDER = ("bronze/sent", "quarantine/sent", "ingested_files/sent", "ops/tables")
FILES = ([0, 10, 20, 40], [45, 50, 58], [65, 80, 90], [150])


@pytest.fixture
def world() -> Iterator[World]:
    with open_world(quick=False) as made:
        made.source = replace(SOURCE, commit_bytes=1, clock_grace=None)
        sources.SOURCES = (made.source,)
        yield made


def at(minutes: int):
    return instant_of(START_US + minutes * MINUTE_US)


def take(world: World, number: int) -> None:
    path = Path(world.lake.landing("sent"), f"{number}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"key": "a", "value": 1, "sent_at": at(m).isoformat()} for m in FILES[number]]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    os.utime(path, (1_700_000_000 + number,) * 2)
    world.pass_time(timedelta(minutes=1))
    ingest(world.lake, world.source)


def test_what_is_called_right_is_right(world: World):
    root, stream = Path(world.lake.root), world.streams["counts"]
    world.pass_time(timedelta(hours=3))
    take(world, 0)
    run(world, "counts")
    for part in OLDER:
        shutil.copytree(root / part, root.parent / "copy" / part)
    for number in (1, 2, 3):
        take(world, number)
        run(world, "counts")
    whole = world.table("counts")
    for part in OLDER:
        shutil.rmtree(root / part)
        shutil.move(root.parent / "copy" / part, root / part)
    with pytest.raises(LakeError, match="it is an older copy"):
        run(world, "counts")
    try:
        recompute(world.engine, world.lake, stream, at(0), at(60))
    except (LakeError, SettingsError):
        return  # as it should
    world.pass_time(timedelta(minutes=1))
    ingest(world.lake, world.source)
    run(world, "counts")
    recompute(world.engine, world.lake, stream, at(60), at(100))
    reseed(world.engine, world.lake, stream, ReseedOptions())
    run(world, "counts")
    judged = table_coverage(world.lake, stream)
    assert judged.distrust or judged.coverage.wrong or world.table("counts") == whole
