"""An older bronze, behind which mended files land: who has read what was there before is not of it."""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

import pytest

from include.coverage.table_coverage import find_coverage, table_coverage
from include.fold.instants import instant_of
from include.lake.paths import LakeError
from include.plans.reseed_options import ReseedOptions
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from tests.simulator.older_bronze import back_up, put_back, take
from tests.simulator.older_bronze import world as world
from tests.simulator.steps import run
from tests.simulator.world import MINUTE_US, START_US, World


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


@pytest.mark.parametrize("again", [100, 105])  # the same file, or mended
def test_a_generation_that_has_not_run_yet_passes_over_nothing(world: World, again: int):
    """It would go on behind the version of bronze that its reseed has read: by now another commit."""
    stream = world.streams["counts"]
    world.pass_time(timedelta(days=4))
    take(world, 0, "a", [30, 60])
    run(world, "counts")
    back_up(world)
    take(world, 1, "a", [100, 130])
    reseed(world.engine, world.lake, stream, ReseedOptions())
    put_back(world)
    take(world, 1, "a", [again, 130])
    take(world, 2, "a", [200])
    take(world, 3, "a", [300])
    with pytest.raises(LakeError, match=r"`./stateful reseed sim_counts --apply`"):
        run(world, "counts")
    reseed(world.engine, world.lake, stream, ReseedOptions())
    run(world, "counts")
    expected = counted([("a", minute) for minute in (30, 60, again, 130, 200)])
    assert emitted(world, "counts") == expected


@pytest.mark.parametrize("mended_by", ["recompute", "reseed"])
def test_what_only_a_backfill_made_of_rows_that_are_gone_is_not_called_right(
    world: World, mended_by: str
):
    """Live has left the late row out: what it has read is in the older bronze, too."""
    stream = world.streams["counts"]
    hour_us = START_US, START_US + 60 * MINUTE_US
    hour = [instant_of(edge) for edge in hour_us]
    world.pass_time(timedelta(days=4))
    take(world, 0, "a", [10, 20, 500])
    run(world, "counts")
    settled = [("a", 10), ("a", 20)]
    back_up(world)
    take(world, 1, "a", [5])
    recompute(world.engine, world.lake, stream, *hour)
    assert emitted(world, "counts") != counted(settled)
    put_back(world)
    take(world, 1, "a", [700])  # mended: it was of a later hour
    (span,) = table_coverage(world.lake, stream).coverage.wrong
    assert (span.from_us, span.until_us, span.reason) == (*hour_us, "other bronze")
    if mended_by == "recompute":
        recompute(world.engine, world.lake, stream, *hour)
    else:
        reseed(world.engine, world.lake, stream, ReseedOptions())
        settled.append(("a", 500))
    assert emitted(world, "counts") == counted(settled)
    assert table_coverage(world.lake, stream).coverage.wrong == ()


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
    assert any("reseed sim_" in each.action for each in find_coverage(world.lake, stream))
    with pytest.raises(LakeError, match="reseed"):
        run(world, kind)
    reseed(world.engine, world.lake, stream, ReseedOptions())
    take(world, 4, "a", [900])
    take(world, 5, "a", [990])
    run(world, kind)
    firsts = [("a", minute) for minute in (10, 20, 300)]
    expected = counted([*firsts, *([("a", 350)] if has_grown else []), ("a", 900)])
    assert emitted(world, kind) == (expected if kind == "counts" else newest(expected))
    assert table_coverage(world.lake, stream).is_right
