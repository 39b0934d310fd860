"""A recovery drill, by the command line: what it shows, records and leaves as it was."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.care import recovery_drill
from include.care.check_checkpoint import check_checkpoint
from include.care.drill_result import finish_drill
from include.care.last_drill import last_drill
from include.lake.lease import hold_lease
from include.lake.ops import append_ops, read_ops, update_ops
from include.lake.paths import Lake, LakeError
from include.landing.erasures import begin_erasure, new_erasure
from spark_jobs import reseed_stream
from spark_jobs.engines.local_engine import LocalEngine
from tests.care.drills import drilled, hashes, plant
from tests.faults.command_line import CommandLine
from tests.faults.lakes import FILE_HOURS, HOUR_US, START_US, STREAMS, Event, Story, registered
from tests.simulator.live_model import LiveModel

NAMES = ("device_signals", "user_counts")


@pytest.fixture(scope="module")
def commands() -> Iterator[CommandLine]:
    commands = CommandLine(lambda: LocalEngine(LiveModel()))
    with registered(), commands.installed():
        yield commands


@pytest.fixture(scope="module")
def lived(commands: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Story]:
    """Three runs of each stream, with a savepoint at each midnight that was passed."""
    stories = {}
    for name in NAMES:
        root = tmp_path_factory.mktemp(name) / "lake"
        root.mkdir()
        story = Story(Lake(str(root)), STREAMS[name], 0)
        for _ in range(3):
            story = story.land()
            told = commands.stateful(story.lake.root, f"stream {name}")
            assert told.code == 0, told.text
        stories[name] = story
    return stories


@pytest.fixture(params=NAMES)
def story(lived: dict[str, Story], request: pytest.FixtureRequest, tmp_path: Path) -> Story:
    return lived[request.param].copied(tmp_path / "copied")


def test_a_restore_comes_to_the_rows_that_the_table_has(commands, story):
    told = drilled(commands, story)
    assert told.code == 0, told.text
    drill = last_drill(story.lake, story.stream.name)
    assert drill["is_equal"] is True
    assert drill["outcome"] == "succeeded"
    assert drill["rows_out"] > 0
    assert drill["ended_at"] > drill["started_at"]
    savepoints = read_ops(story.lake, "savepoints")["savepoint_id"].to_pylist()
    assert drill["savepoint_id"] in savepoints
    assert drill["savepoint_id"] in told.text
    assert "all equal" in told.text


def test_of_the_lake_only_the_row_in_ops_runs_is_written(commands, story):
    before, runs = hashes(story.lake), read_ops(story.lake, "runs").num_rows
    assert drilled(commands, story).code == 0
    assert hashes(story.lake) == before
    assert read_ops(story.lake, "runs").num_rows == runs + 1


def test_the_stream_goes_on_as_if_there_had_been_no_drill(commands, story):
    assert drilled(commands, story).code == 0
    story = story.land()
    assert commands.stateful(story.lake.root, f"stream {story.stream.name}").code == 0
    assert story.differences() == []


def test_a_row_that_was_changed_by_hand_is_found(commands, story):
    plant(story)
    told = drilled(commands, story)
    assert told.code == 1
    assert "not equal" in told.text
    drill = last_drill(story.lake, story.stream.name)
    assert (drill["is_equal"], drill["outcome"]) == (False, "failed")
    assert "lacks 1, and it has 1 others" in drill["error"]


def test_a_check_says_that_the_last_drill_failed_until_one_succeeds(commands, story):
    def findings() -> list[str]:
        return [one.finding for one in check_checkpoint(story.lake, story.stream).findings]

    assert "drill_failed" not in findings()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reseed_stream, "plan_reseed", lambda *_: 1 / 0)
        told = drilled(commands, story)
    assert told.code == 1
    assert "the restore failed: division by zero" in told.text
    assert last_drill(story.lake, story.stream.name)["is_equal"] is None
    assert "drill_failed" in findings()
    assert drilled(commands, story).code == 0
    assert "drill_failed" not in findings()


def test_a_restore_that_has_left_no_trace_has_failed(commands, story, monkeypatch):
    monkeypatch.setattr("include.cli.state.run_job", lambda *_: 1)
    told = drilled(commands, story)
    assert told.code == 1
    assert "has not run to its end" in told.text


def test_what_is_written_while_it_is_copied_is_no_copy(commands, story, monkeypatch):
    copied = recovery_drill._copied_lake

    def copied_beside_a_run(lake, stream):
        copy = copied(lake, stream)
        story.land()
        assert commands.stateful(lake.root, f"stream {stream.name}").code == 0
        return copy

    monkeypatch.setattr(recovery_drill, "_copied_lake", copied_beside_a_run)
    told = drilled(commands, story)
    assert told.code == 2
    assert "while it was copied" in told.text
    assert not Path(story.lake.drill(story.stream.name)).exists()
    assert last_drill(story.lake, story.stream.name) is None


def test_a_copy_that_is_being_restored_is_left_alone(commands, story):
    recovery_drill.begin_drill(story.lake, story.stream)
    copy = recovery_drill.drill_lake(story.lake, story.stream)
    with hold_lease(copy, f"stream-{story.stream.name}"):
        before = hashes(copy)
        told = drilled(commands, story)
        assert told.code == 2
        assert "another drill" in told.text
        assert hashes(copy) == before


def test_the_copy_of_a_drill_that_was_killed_is_no_other_drills(commands, story):
    """The Dag run of a month on, whose own copy task has failed."""
    begun = recovery_drill.begin_drill(story.lake, story.stream, "last_month")
    copy = recovery_drill.drill_lake(story.lake, story.stream)
    restore = f"reseed {story.stream.name} {' '.join(begun.arguments)} --apply"
    assert commands.stateful(copy.root, restore).code == 0
    for other in ("this_month", None):
        with pytest.raises(LakeError, match="of the Dag run last_month"):
            finish_drill(story.lake, story.stream, other)
    assert last_drill(story.lake, story.stream.name) is None
    assert "all equal" in finish_drill(story.lake, story.stream, "last_month")


def test_a_drill_that_cannot_begin_leaves_no_older_copy(story):
    recovery_drill.begin_drill(story.lake, story.stream)
    with hold_lease(story.lake, f"stream-{story.stream.name}"), pytest.raises(LakeError):
        recovery_drill.begin_drill(story.lake, story.stream)
    with pytest.raises(LakeError, match="has begun"):
        recovery_drill.begun_drill(story.lake, story.stream)


def test_what_a_late_row_has_made_wrong_is_not_compared(commands, story):
    late = Event(1, START_US + (FILE_HOURS + 2) * HOUR_US)
    folder = Path(story.lake.landing(story.stream.source))
    (folder / "late.jsonl").write_text(late.line(story.stream.source))
    story = story.land()
    assert commands.stateful(story.lake.root, f"stream {story.stream.name}").code == 0
    told = drilled(commands, story)
    if story.stream.name == "user_counts":  # one state, and not right
        assert told.code == 2
        assert "nothing right that a drill could compare" in told.text
    else:
        assert told.code == 0, told.text
        drill = last_drill(story.lake, story.stream.name)
        assert drill["is_equal"] is True
        assert 0 < drill["rows_out"] <= 4


def test_without_a_savepoint_nothing_is_drilled(commands, story):
    for row in read_ops(story.lake, "savepoints").to_pylist():
        recovery_drill.mark_deleted(story.lake, [row["savepoint_id"]])
    before = hashes(story.lake)
    told = drilled(commands, story)
    assert told.code == 2
    assert "no clean savepoint" in told.text
    assert hashes(story.lake) == before


def test_a_table_that_is_not_what_was_recorded_is_not_drilled(commands, story):
    DeltaTable(story.lake.table(story.stream.name)).delete()
    told = drilled(commands, story)
    assert told.code == 2
    assert "./stateful reseed" in told.text


def test_a_damaged_savepoint_fails_the_drill_though_an_older_one_comes_to_the_same(commands, story):
    savepoints = Path(story.lake.savepoints(story.stream.name))
    for path in savepoints.rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            path.write_bytes(bytes(path.stat().st_size))
    told = drilled(commands, story)
    assert told.code == 1
    assert "equal, but by an older savepoint or none" in told.text
    drill = last_drill(story.lake, story.stream.name)
    assert (drill["is_equal"], drill["outcome"]) == (True, "failed")


def test_a_key_is_not_erased_beside_a_copy_and_nothing_copied_beside_an_erasure(commands, story):
    source = {"device_signals": "signals", "user_counts": "user_events"}[story.stream.name]
    key = {"device_signals": "device_id=1", "user_counts": "user_id=u1"}[story.stream.name]
    recovery_drill.begin_drill(story.lake, story.stream)
    told = commands.stateful(story.lake.root, f"erase {source} {key}")
    assert told.code == 2
    assert f"drills/{story.stream.name} may have the key" in told.text
    recovery_drill.end_drill(story.lake, story.stream)
    assert commands.stateful(story.lake.root, f"erase {source} {key}").code == 0
    begin_erasure(story.lake, new_erasure(story.lake, source, {"any": "1"}, "a-bronze"), {})
    told = drilled(commands, story)
    assert told.code == 2
    assert "is being erased" in told.text


AHEAD = timedelta(days=400)  # of a machine's clock that was set right since


@pytest.fixture
def reseeded_ahead(commands, story) -> Story:
    """It has a reseed of the future on record."""
    told = commands.stateful(story.lake.root, f"reseed {story.stream.name} --apply")
    assert told.code == 0, told.text
    # It goes on: a generation that has not run has nothing that a drill could damage.
    story = story.land()
    assert commands.stateful(story.lake.root, f"stream {story.stream.name}").code == 0
    (run,) = read_ops(story.lake, "runs", {"job": "reseed_stream"}).to_pylist()
    times = {name: run[name] + AHEAD for name in ("started_at", "ended_at")}
    update_ops(story.lake, "runs", ["run_id"], [{"run_id": run["run_id"], **times}])
    return story


def test_a_restore_that_failed_is_not_taken_for_a_reseed_of_the_future(
    commands, reseeded_ahead, monkeypatch
):
    monkeypatch.setattr(reseed_stream, "plan_reseed", lambda *_: 1 / 0)
    told = drilled(commands, reseeded_ahead)
    assert told.code == 1
    assert "the restore failed" in told.text


def test_a_restore_that_never_ran_is_not_taken_for_a_reseed_of_the_future(
    commands, reseeded_ahead, monkeypatch
):
    monkeypatch.setattr("include.cli.state.run_job", lambda *_: 1)
    told = drilled(commands, reseeded_ahead)
    assert told.code == 1
    assert "the restore has not run" in told.text


def test_a_finding_of_the_future_does_not_fail_each_drill(commands, story):
    found = {
        "subject": story.stream.name,
        "finding": "savepoint_damaged",
        "severity": "warning",
        "detail": "long mended",
        "found_at": datetime.now(UTC) + AHEAD,
    }
    append_ops(story.lake, "findings", [found])
    told = drilled(commands, story)
    assert told.code == 0, told.text
