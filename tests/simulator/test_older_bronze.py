"""An older bronze, behind which mended files land: who has read what was there before is not of it."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from include.coverage.table_coverage import find_coverage, table_coverage
from include.fold.admission import instant_of
from include.lake.paths import LakeError
from include.landing.ingest import ingest
from include.plans.reseed_plan import ReseedOptions
from include.streams import sources
from spark_jobs.reseed_stream import reseed
from tests.refused import refused_until
from tests.simulator.steps import run
from tests.simulator.world import MINUTE_US, SOURCE, START_US, World, open_world

OLDER = ("bronze/sent", "quarantine/sent", "ingest_log/sent")


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


def counted(rows: Sequence[tuple[str, int]]) -> Counter[tuple[str, int, int]]:
    """What `counts` emits of these keys and minutes, in order."""
    so_far: Counter[str] = Counter()
    found: Counter[tuple[str, int, int]] = Counter()
    for key, minute in rows:
        so_far[key] += 1
        found[key, so_far[key], START_US + minute * MINUTE_US] += 1
    return found


def emitted(world: World, kind: str) -> Counter[tuple[str, int, int]]:
    return Counter((*each.row[::2], each.at_us) for each in world.table(kind))


def newest(counts: Mapping[tuple[str, int, int], int]) -> Counter[tuple[str, int, int]]:
    """Of each key, as an update table has it."""
    return Counter(
        {(key, n, at): 1 for key, n, at in counts if (key, n + 1) not in {c[:2] for c in counts}}
    )


@pytest.mark.parametrize("kind", ["counts", "counts_per_key"])
@pytest.mark.parametrize("recompute", [False, True])
def test_a_reseed_goes_on_with_the_rows_that_bronze_has(world: World, kind: str, recompute: bool):
    stream = world.streams[kind]
    world.pass_time(timedelta(days=4))
    take(world, 0, "a", [0, 10, 20, 40])
    run(world, kind)
    back_up(world)
    take(world, 1, "a", [45, 50, 58])
    take(world, 2, "a", [150])
    run(world, kind)
    reseed(world.engine, world.lake, stream, ReseedOptions())  # with its savepoint
    put_back(world)
    take(world, 1, "b", [45, 50, 58])  # mended: they were another key's
    take(world, 2, "a", [150])
    with suppress(LakeError):
        run(world, kind)
    reseed(world.engine, world.lake, stream, ReseedOptions(recompute=recompute))
    take(world, 3, "b", [300])
    take(world, 4, "b", [340])
    run(world, kind)
    assert table_coverage(world.lake, stream).coverage.live_is_right
    firsts = [("a", minute) for minute in (0, 10, 20, 40)]
    others = [("b", 45), ("b", 50), ("b", 58), ("a", 150), ("b", 300)]
    expected = counted([*firsts, *others])
    assert emitted(world, kind) == (expected if kind == "counts" else newest(expected))


@pytest.mark.parametrize("kind", ["counts", "counts_per_key"])
@pytest.mark.parametrize("has_grown", [False, True])
def test_a_table_with_rows_that_bronze_lacks_is_not_called_right(
    world: World, kind: str, has_grown: bool
):
    stream = world.streams[kind]
    world.pass_time(timedelta(days=4))
    take(world, 0, "a", [10, 20, 300])
    run(world, kind)
    back_up(world)
    for number, minute in enumerate((400, 500, 600), 1):
        take(world, number, "b", [minute])
    run(world, kind)
    put_back(world)
    shutil.rmtree(world.lake.landing("sent"))  # else they would land again
    if has_grown:  # and not yet as far as it was read
        take(world, 1, "a", [350])
    judged = table_coverage(world.lake, stream)
    assert not judged.is_right
    assert find_coverage(world.lake, stream)
    with refused_until(f"reseed {stream.name}"):
        run(world, kind)
    reseed(world.engine, world.lake, stream, ReseedOptions())
    take(world, 4, "a", [900])
    take(world, 5, "a", [990])
    run(world, kind)
    firsts = [("a", minute) for minute in (10, 20, 300)]
    expected = counted([*firsts, *([("a", 350)] if has_grown else []), ("a", 900)])
    assert emitted(world, kind) == (expected if kind == "counts" else newest(expected))
    assert table_coverage(world.lake, stream).is_right
