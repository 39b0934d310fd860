"""Replaced generations' checkpoints go when their time is over, and nothing else ever does."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import FSSpecHandler, PyFileSystem

from include.care.old_generations import (
    delete_old_generations,
    find_old_generations,
    format_old_generations,
)
from include.lake.generations import read_generations
from include.lake.lease import hold_lease
from include.lake.ops import append_ops, update_ops
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import SavepointRules, Stream
from tests.examples import examples
from tests.refused import refused

COUNTS = stream_named("user_counts")
KEPT = COUNTS.savepoints.keep_generations
NOW = datetime.now(UTC)
LONG_AGO, LATELY = NOW - KEPT - timedelta(days=1), NOW - KEPT + timedelta(days=1)


def add(
    lake: Lake,
    generation: int,
    status: str | None = "current",
    switched_at: datetime | None = LONG_AGO,
    folder: bool = True,
) -> None:
    append_ops(lake, "generations", [row_of(generation, status, switched_at)])
    if folder:
        make_checkpoint(lake, str(generation))


def row_of(generation: int, status: str | None, switched_at: datetime | None) -> dict[str, object]:
    return {
        "stream": COUNTS.name,
        "generation": generation,
        "status": status,
        "switched_at": switched_at,
    }


def make_checkpoint(lake: Lake, name: str) -> Path:
    checkpoint = Path(lake.root, "checkpoints", COUNTS.name, name)
    for file in ("metadata", "offsets/0", "state/0/1/1.changelog", "state/0/.1.crc"):
        (checkpoint / file).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / file).write_text("x" * 100)
    return checkpoint


def add_first(lake: Lake) -> None:
    add(lake, 1, status=None, switched_at=None)


def folders(lake: Lake) -> set[str]:
    return {path.name for path in Path(lake.root, "checkpoints", COUNTS.name).glob("*")}


def deleted(lake: Lake) -> list[int]:
    rows = read_generations(lake, COUNTS.name).rows
    return sorted(row["generation"] for row in rows if row["deleted_at"] is not None)


def expired(lake: Lake, now: datetime = NOW, stream: Stream = COUNTS) -> list[int]:
    return [old.generation for old in find_old_generations(lake, stream, now).expired]


HISTORIES = st.lists(
    st.tuples(st.sampled_from(["current", "intent"]), st.booleans(), st.booleans()), max_size=6
)


@examples(25)
@given(HISTORIES)
def test_exactly_those_go_that_another_replaced_long_enough_ago(tmp_path_factory, history):
    """`history`: of each generation after the first its status, whether it is long ago that the
    stream switched to it, and whether it has a checkpoint."""
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    rows = [row_of(1, None, None)]
    make_checkpoint(lake, "1")
    for number, (status, is_old, has_folder) in enumerate(history, start=2):
        rows.append(row_of(number, status, LONG_AGO if is_old else LATELY))
        if has_folder:
            make_checkpoint(lake, str(number))
    append_ops(lake, "generations", rows)
    before, current = folders(lake), read_generations(lake, COUNTS.name).number

    going = set()
    for number in range(1, current):
        is_intent = number > 1 and history[number - 2][0] == "intent"
        after = [is_old for status, is_old, _ in history[number - 1 :] if status == "current"]
        if not is_intent and after[0]:
            going.add(number)
    gone = delete_old_generations(lake, COUNTS)
    assert folders(lake) == before - {str(number) for number in going}
    assert gone == sorted(number for number in going if str(number) in before)
    assert set(deleted(lake)) == going
    # The numbers of what is gone are still taken: a reseed counts on from the highest row.
    numbers = [row["generation"] for row in read_generations(lake, COUNTS.name).rows]
    assert sorted(numbers) == list(range(1, len(history) + 2))
    assert read_generations(lake, COUNTS.name).number == current
    assert delete_old_generations(lake, COUNTS) == []


def test_one_is_kept_for_as_long_as_the_stream_says_to_the_microsecond(lake):
    add_first(lake)
    add(lake, 2, switched_at=NOW)
    assert expired(lake, NOW + KEPT - timedelta(microseconds=1)) == []
    assert expired(lake, NOW + KEPT) == [1]
    with refused("wrong_setting"):
        SavepointRules(keep_generations=timedelta(0))


@pytest.mark.parametrize("left", [True, False])
def test_a_deletion_that_was_cut_off_is_finished(lake, left):
    add_first(lake)
    add(lake, 2)
    row = {"stream": COUNTS.name, "generation": 1, "deleted_at": NOW}
    update_ops(lake, "generations", ("stream", "generation"), [row])  # where it was killed
    if left:
        Path(lake.checkpoint(COUNTS.name, 1), "metadata").unlink()
    assert delete_old_generations(lake, COUNTS) == [1]
    assert (folders(lake), deleted(lake)) == ({"2"}, [1])
    (first,) = (row for row in read_generations(lake, COUNTS.name).rows if row["generation"] == 1)
    assert first["deleted_at"] == NOW


def test_a_stream_at_work_keeps_its_checkpoints_until_the_next_day(lake):
    add_first(lake)
    add(lake, 2)
    with hold_lease(lake, f"stream-{COUNTS.name}"):
        assert delete_old_generations(lake, COUNTS) == []
    assert (folders(lake), deleted(lake)) == ({"1", "2"}, [])
    assert delete_old_generations(lake, COUNTS) == [1]


def test_a_reseed_in_between_is_seen_under_the_lease(lake, monkeypatch):
    """What was found before the lease was got does not count."""
    add_first(lake)
    add(lake, 2)
    answers = iter(
        [find_old_generations(lake, COUNTS, NOW), find_old_generations(lake, COUNTS, LATELY)]
    )
    monkeypatch.setattr(
        "include.care.old_generations.find_old_generations", lambda *_: next(answers)
    )
    assert delete_old_generations(lake, COUNTS) == []
    assert folders(lake) == {"1", "2"}


def report(lake: Lake) -> str:
    return format_old_generations(lake, [COUNTS], NOW)


def test_folders_that_nobody_knows_are_named_and_left_alone(lake):
    add_first(lake)
    add(lake, 2)
    add(lake, 3, status="intent", switched_at=None)
    for name in ("7", "01", "1.bak"):
        make_checkpoint(lake, name)
    Path(lake.root, "checkpoints", COUNTS.name, "note.txt").write_text("mine")
    text = report(lake)
    assert all(f"checkpoints/user_counts/{name}" in text for name in ("7", "01", "1.bak"))
    assert delete_old_generations(lake, COUNTS) == [1]
    assert folders(lake) == {"2", "3", "7", "01", "1.bak", "note.txt"}


def test_a_stream_without_rows_runs_on_its_first_checkpoint(lake):
    make_checkpoint(lake, "1")
    assert delete_old_generations(lake, COUNTS) == []
    assert folders(lake) == {"1"}


class Storage(FSSpecHandler):
    """Not this machine's own: pyarrow knows it through an interface of our making."""

    def __init__(self, refuses: bool):
        super().__init__(LocalFileSystem())
        self.refuses = refuses

    def delete_dir(self, path: str) -> None:
        if self.refuses:
            raise PermissionError(f"no permission for {path}")
        super().delete_dir(path)


def test_on_any_storage_what_cannot_be_deleted_is_named_and_tried_again(lake):
    add_first(lake)
    add(lake, 2)
    lake.__dict__["_opened"] = PyFileSystem(Storage(refuses=True)), lake.root
    with refused("unreadable_lake", subject="checkpoints/user_counts/1"):
        delete_old_generations(lake, COUNTS)
    # Marked by then: nobody goes back to what may be half deleted.
    assert (folders(lake), deleted(lake)) == ({"1", "2"}, [1])
    lake.__dict__["_opened"] = PyFileSystem(Storage(refuses=False)), lake.root
    assert delete_old_generations(lake, COUNTS) == [1]
    assert (folders(lake), deleted(lake)) == ({"2"}, [1])
