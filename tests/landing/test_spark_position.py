"""What a checkpoint of release 0.5 says of landing: committed batches, one that was begun, damage."""

import os
from pathlib import Path

import pytest

from include.lake.paths import Lake, LakeError
from include.landing.ingest_position import Batch, files_waiting, read_position
from include.landing.spark_position import (
    newest_batch,
    newest_committed_batch,
    read_planned_batch,
    read_query_id,
)
from tests.ingest_checkpoint import QUERY_ID, SOURCE, IngestCheckpoint
from tests.landed_files import Landing


@pytest.fixture
def checkpoint(lake: Lake) -> IngestCheckpoint:
    return IngestCheckpoint(lake)


def land(lake: Lake, *names: str) -> None:
    for name in names:
        Landing(lake).add(name, "")


def test_without_a_checkpoint_there_is_nothing_to_take_over(lake: Lake):
    assert read_query_id(lake, SOURCE) is None
    assert newest_batch(lake, SOURCE) == newest_committed_batch(lake, SOURCE) == -1


def test_a_checkpoint_without_a_batch_has_taken_nothing(lake: Lake, checkpoint: IngestCheckpoint):
    land(lake, "a")
    assert read_query_id(lake, SOURCE) == QUERY_ID
    assert newest_batch(lake, SOURCE) == newest_committed_batch(lake, SOURCE) == -1
    assert files_waiting(lake, SOURCE) == 1


def test_files_of_committed_batches_do_not_wait(lake: Lake, checkpoint: IngestCheckpoint):
    land(lake, "a", "b c+%20", "ü", "new")
    checkpoint.log("0", {"a": 0})
    checkpoint.log("1", {"b c+%20": 1, "ü": 1})
    for batch in (0, 1):
        checkpoint.plan(batch, batch)
        checkpoint.commit(batch)
    assert files_waiting(lake, SOURCE) == 1
    assert read_planned_batch(lake, SOURCE, 1) == (("b c+%20", "ü"), 1_001_000)


def test_files_of_a_batch_that_is_not_committed_wait(lake: Lake, checkpoint: IngestCheckpoint):
    land(lake, "a", "b")
    checkpoint.log("0", {"a": 0})
    checkpoint.log("1", {"b": 1})
    checkpoint.plan(0, 0)
    assert files_waiting(lake, SOURCE) == 2
    checkpoint.commit(0)
    assert files_waiting(lake, SOURCE) == 1  # in the log, but in no batch yet
    checkpoint.plan(1, 1)
    assert files_waiting(lake, SOURCE) == 1
    assert (newest_batch(lake, SOURCE), newest_committed_batch(lake, SOURCE)) == (1, 0)
    position = read_position(lake, SOURCE)
    assert position is not None
    assert (position.id, position.newest, position.taken) == (QUERY_ID, 1, {"a"})
    assert position.open == Batch(QUERY_ID, 1, ("b",), 1_001_000)


def test_a_planned_file_that_is_gone_still_waits_so_that_the_run_can_say_so(
    lake: Lake, checkpoint: IngestCheckpoint
):
    checkpoint.log("0", {"gone": 0})
    checkpoint.plan(0, 0)
    assert files_waiting(lake, SOURCE) == 1


def test_a_taken_file_that_is_gone_does_not_wait(lake: Lake, checkpoint: IngestCheckpoint):
    checkpoint.log("0", {"gone": 0})
    checkpoint.plan(0, 0)
    checkpoint.commit(0)
    assert files_waiting(lake, SOURCE) == 0


def test_the_newest_compacted_log_replaces_those_before_it(
    lake: Lake, checkpoint: IngestCheckpoint
):
    land(lake, *(str(number) for number in range(12)))
    checkpoint.log("8", {"not read": 8})
    checkpoint.log("9.compact", {str(number): number for number in range(10)})
    checkpoint.log("10", {"10": 10})
    checkpoint.plan(5, 9)
    checkpoint.plan(6, 10)
    checkpoint.commit(5)
    assert files_waiting(lake, SOURCE) == 2
    assert read_planned_batch(lake, SOURCE, 6)[0] == ("10",)
    checkpoint.plan(4, 7)
    assert read_planned_batch(lake, SOURCE, 5)[0] == ("8", "9")


def test_a_checkpoint_of_another_folder_is_refused(lake: Lake, checkpoint: IngestCheckpoint):
    checkpoint.write("sources/0/0", {"path": "file:///else/where/a", "timestamp": 1, "batchId": 0})
    with pytest.raises(LakeError, match="/else/where/a"):
        files_waiting(lake, SOURCE)


@pytest.mark.parametrize("line", ["-", "{", '{"other": 1}', "[]"])
def test_a_broken_offset_names_its_file(lake: Lake, checkpoint: IngestCheckpoint, line: str):
    checkpoint.write("offsets/3", {"batchTimestampMs": 1}, line)
    checkpoint.commit(3)
    with pytest.raises(LakeError, match="offsets/3"):
        files_waiting(lake, SOURCE)


def test_a_lake_can_be_given_by_a_relative_path(
    lake: Lake, checkpoint: IngestCheckpoint, monkeypatch: pytest.MonkeyPatch
):
    land(lake, "a", "b")
    checkpoint.log("0", {"a": 0})
    checkpoint.plan(0, 0)
    checkpoint.commit(0)
    monkeypatch.chdir(Path(lake.root).parent)
    assert files_waiting(Lake(os.path.relpath(lake.root)), SOURCE) == 1
    assert files_waiting(Lake(Path(lake.root).as_uri()), SOURCE) == 1
