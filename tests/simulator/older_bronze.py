"""Bronze, its position and its seal put back from a copy, behind which other files land."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from include.fold.instants import instant_of
from include.landing.ingest import ingest
from include.streams import sources
from tests.simulator.world import MINUTE_US, SOURCE, START_US, World, open_world

OLDER = ("bronze/sent", "quarantine/sent", "ingested_files/sent", "ops/tables")


@pytest.fixture
def world() -> Iterator[World]:
    """Each file is a commit of bronze, and nothing but rows moves the watermark."""
    with open_world() as made:
        made.source = replace(SOURCE, commit_bytes=1, clock_grace=None)
        sources.SOURCES = (made.source,)
        yield made


def take(world: World, number: int, key: str, minutes: list[int]) -> None:
    """Land a file of that number with a row for each of the minutes, and ingest it."""
    path = Path(world.lake.landing("sent"), f"{number}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    at = [instant_of(START_US + m * MINUTE_US).isoformat() for m in minutes]
    rows = [{"key": key, "value": 1, "sent_at": each} for each in at]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    os.utime(path, (1_700_000_000 + number,) * 2)
    world.pass_time(timedelta(minutes=1))
    ingest(world.lake, world.source)


def back_up(world: World) -> None:
    root = Path(world.lake.root)
    for part in OLDER:
        shutil.copytree(root / part, root.parent / "copy" / part)


def put_back(world: World) -> None:
    root = Path(world.lake.root)
    for part in OLDER:
        shutil.rmtree(root / part)
        shutil.move(root.parent / "copy" / part, root / part)
