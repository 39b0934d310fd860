"""What is new in landing, held against Spark's own checkpoints and against broken ones."""

import json
import os
from pathlib import Path

import pytest

from include.lake.paths import Lake, LakeError
from include.landing.position import (
    files_waiting,
    landed_files,
    newest_batch,
    newest_committed_batch,
    read_planned_batch,
)

SOURCE = "signals"


class Checkpoint:
    """Writes what Spark writes: the file log, the offsets, the commits."""

    def __init__(self, lake: Lake) -> None:
        self._landing = lake.landing(SOURCE)
        self.folder = Path(lake.ingest_checkpoint(SOURCE))

    def write(self, path: str, *lines: object) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        file.write_text("\n".join(["v1", *texts]))

    def log(self, path: str, files: dict[str, int]) -> None:
        entries = [
            {"path": f"file://{self._landing}/{name}", "timestamp": 1, "batchId": offset}
            for name, offset in files.items()
        ]
        self.write(f"sources/0/{path}", *entries)

    def plan(self, batch: int, offset: int) -> None:
        self.write(f"offsets/{batch}", {"batchTimestampMs": 1000 + batch}, {"logOffset": offset})

    def commit(self, batch: int) -> None:
        self.write(f"commits/{batch}", {"nextBatchWatermarkMs": 0})


@pytest.fixture
def checkpoint(lake: Lake) -> Checkpoint:
    return Checkpoint(lake)


def land(lake: Lake, *names: str) -> None:
    for name in names:
        path = Path(lake.landing(SOURCE)) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_without_landing_and_checkpoint_nothing_waits(lake: Lake):
    assert files_waiting(lake, SOURCE) == 0
    assert newest_batch(lake, SOURCE) == newest_committed_batch(lake, SOURCE) == -1


def test_without_a_checkpoint_all_files_wait_but_hidden_ones(lake: Lake):
    land(lake, "a", "b/c", "_metadata_of_x", "_a=b")
    land(lake, "_a", ".b", "_c/d", "e/.f/g", "h._COPYING_")
    assert set(landed_files(lake, SOURCE)) == {"a", "b/c", "_metadata_of_x", "_a=b"}
    assert files_waiting(lake, SOURCE) == 4


def test_files_of_committed_batches_do_not_wait(lake: Lake, checkpoint: Checkpoint):
    land(lake, "a", "b c+%20", "ü", "new")
    checkpoint.log("0", {"a": 0})
    checkpoint.log("1", {"b%20c+%2520": 1, "ü": 1})
    for batch in (0, 1):
        checkpoint.plan(batch, batch)
        checkpoint.commit(batch)
    assert files_waiting(lake, SOURCE) == 1
    assert read_planned_batch(lake, SOURCE, 1).files == ("b c+%20", "ü")
    assert read_planned_batch(lake, SOURCE, 1).ingested_at_us == 1_001_000


def test_files_of_a_batch_that_is_not_committed_wait(lake: Lake, checkpoint: Checkpoint):
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


def test_a_planned_file_that_is_gone_still_waits_so_that_the_run_can_say_so(
    lake: Lake, checkpoint: Checkpoint
):
    checkpoint.log("0", {"gone": 0})
    checkpoint.plan(0, 0)
    assert files_waiting(lake, SOURCE) == 1


def test_a_taken_file_that_is_gone_does_not_wait(lake: Lake, checkpoint: Checkpoint):
    checkpoint.log("0", {"gone": 0})
    checkpoint.plan(0, 0)
    checkpoint.commit(0)
    assert files_waiting(lake, SOURCE) == 0


def test_the_newest_compacted_log_replaces_those_before_it(lake: Lake, checkpoint: Checkpoint):
    land(lake, *(str(number) for number in range(12)))
    checkpoint.log("8", {"not read": 8})
    checkpoint.log("9.compact", {str(number): number for number in range(10)})
    checkpoint.log("10", {"10": 10})
    checkpoint.plan(5, 9)
    checkpoint.plan(6, 10)
    checkpoint.commit(5)
    assert files_waiting(lake, SOURCE) == 2
    assert read_planned_batch(lake, SOURCE, 6).files == ("10",)
    checkpoint.plan(4, 7)
    assert read_planned_batch(lake, SOURCE, 5).files == ("8", "9")


def test_a_checkpoint_of_another_folder_is_refused(lake: Lake, checkpoint: Checkpoint):
    checkpoint.write("sources/0/0", {"path": "file:///else/where/a", "timestamp": 1, "batchId": 0})
    with pytest.raises(LakeError, match="/else/where/a"):
        files_waiting(lake, SOURCE)


@pytest.mark.parametrize("line", ["-", "{", '{"other": 1}', "[]"])
def test_a_broken_offset_names_its_file(lake: Lake, checkpoint: Checkpoint, line: str):
    checkpoint.write("offsets/3", {"batchTimestampMs": 1}, line)
    checkpoint.commit(3)
    with pytest.raises(LakeError, match="offsets/3"):
        files_waiting(lake, SOURCE)


def test_a_lake_can_be_given_by_a_relative_path(
    lake: Lake, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
):
    land(lake, "a", "b")
    checkpoint.log("0", {"a": 0})
    checkpoint.plan(0, 0)
    checkpoint.commit(0)
    monkeypatch.chdir(Path(lake.root).parent)
    assert files_waiting(Lake(os.path.relpath(lake.root)), SOURCE) == 1
    assert files_waiting(Lake(Path(lake.root).as_uri()), SOURCE) == 1
