"""What is known of a table through the life of a lake: of kills and others' changes."""

from collections.abc import Iterator

import pytest
from deltalake import DeltaTable

from include.lake.generations import read_generations
from include.stream.open_stream import has_waiting_rows
from include.stream.rebuild_plan import RebuildOptions, plan_rebuild
from include.stream.stream_status import stream_status
from spark_jobs.compact_state import compact
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.restate_interval import restate
from spark_jobs.run_stream import drain
from spark_jobs.write_savepoint import savepoint
from tests.deaths import KilledError
from tests.refused import refused
from tests.simulator.auditor import Auditor
from tests.simulator.oracle import Landed
from tests.simulator.world import START_US, World, open_world
from tests.simulator.writes import killed_at

pytestmark = pytest.mark.slow

HOUR_US = 3_600_000_000
KIND = "counts"


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as opened:
        yield opened


def land(world: World, hour: int, late: int | None = None) -> None:
    """Rows of an hour, and of a late one; the clock goes on to its end."""
    hours = [hour] if late is None else [hour, late]
    world.now_us = START_US + (hour + 1) * HOUR_US
    world.ingest([Landed(key, START_US + h * HOUR_US + 5, 1) for h in hours for key in "ab"])


def run(world: World) -> None:
    drain(world.engine, world.lake, world.streams[KIND])


def some_hours(world: World, hours: int = 4) -> None:
    for hour in range(hours):
        land(world, hour)
        run(world)


def names(world: World) -> list[str]:
    return [finding.finding for finding in stream_status(world.lake, world.streams[KIND]).findings]


def check(world: World) -> None:
    Auditor(world, KIND).check()


def at_hour(hour: int):
    from include.fold.admission import instant_of

    return instant_of(START_US + hour * HOUR_US)


def test_rows_that_somebody_deletes_stop_the_stream_until_a_rebuild(world):
    some_hours(world)
    DeltaTable(world.lake.table(world.streams[KIND].name)).delete("key = 'a'")
    assert names(world) == ["table_changed"]
    assert has_waiting_rows(world.lake, world.streams[KIND])
    for job in (
        run,
        lambda w: restate(w.engine, w.lake, w.streams[KIND], at_hour(0), at_hour(1)),
    ):
        with refused("of_other_times"):
            job(world)
    plan = plan_rebuild(world.lake, world.streams[KIND], RebuildOptions())
    assert (plan.starting.savepoint, plan.from_us) == (None, None)
    rebuild(world.engine, world.lake, world.streams[KIND], RebuildOptions())
    assert names(world) == []
    check(world)


SWITCH = "tests.simulator.local_engine.LocalProduct.replace"
RECORDED = "spark_jobs.rebuild_stream.delete_expired"


def killed(*_: object, **__: object) -> None:
    raise KilledError


@pytest.mark.parametrize("step", ["spark_jobs.replay_bronze.replayed", SWITCH, RECORDED])
def test_a_rebuild_that_is_killed_has_changed_nothing_or_is_done(world, monkeypatch, step):
    some_hours(world)
    stream = world.streams[KIND]
    with monkeypatch.context() as patched:
        patched.setattr(step, killed)
        with pytest.raises(KilledError):
            rebuild(world.engine, world.lake, stream, RebuildOptions(full_refresh=True))
    check(world)
    land(world, 4)
    run(world)
    row = read_generations(world.lake, stream.name).pinned()
    assert row["generation"] == (2 if step == RECORDED else 1)
    check(world)


@pytest.mark.parametrize("job", [savepoint, compact])
def test_a_state_of_another_schema_is_not_read_by_the_file_of_now(world, job):
    some_hours(world)
    world.deploy(KIND, "d")
    with refused("settings_changed", subject="state_schema"):
        job(world.engine, world.lake, world.streams[KIND])


def test_an_update_table_that_a_killed_run_left_ahead_is_not_right_until_the_next_one(world):
    stream = world.streams["counts_per_key"]
    auditor, killed = Auditor(world, "counts_per_key"), 0
    for hour in range(3):
        land(world, hour)
        if hour < 2:
            drain(world.engine, world.lake, stream)
    for write in range(4, 14):
        killed += killed_at(write, lambda: drain(world.engine, world.lake, stream))
        auditor.check()
        if stream_status(world.lake, stream).table_status.wrong:
            assert [f.finding for f in stream_status(world.lake, stream).findings] == [
                "table_not_right"
            ]
    assert killed
    drain(world.engine, world.lake, stream)
    auditor.check()
    assert stream_status(world.lake, stream).findings == []
