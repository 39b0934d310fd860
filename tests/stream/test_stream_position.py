"""The position of a stream: its newest batch, and the decision to start no JVM."""

from pathlib import Path
from shutil import rmtree

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from include.cli.__main__ import main
from include.ingest.ingest_log import KEEPALIVE
from include.lake.generations import read_generations
from include.lake.paths import Lake
from include.registry import stream_named
from include.stream.checkpoint import (
    batch_watermark_ms,
    committed_batch,
    is_complete,
    read_position,
)
from include.stream.open_stream import has_waiting_rows
from tests.bronze import of_ours
from tests.refused import refused
from tests.stream.bronze_lake import FIRST_DAY, append, bronze, write_position

STREAM = stream_named("user_counts")


@pytest.fixture(autouse=True)
def table(lake: Lake) -> None:
    """A run makes the stream's table before its first batch."""
    DeltaTable.create(lake.table(STREAM.name), pa.schema([("n", pa.int64())]))


def batch(lake: Lake, next_version: int = 1, number: int = 0, *, committed: bool = True) -> Path:
    """The checkpoint with such a batch."""
    write_position(lake, STREAM.name, next_version, batch=number, committed=committed)
    return Path(lake.checkpoint(STREAM.name, 1))


@pytest.mark.parametrize(
    ("commits", "batches", "waits"),
    [
        (0, {}, False),  # before the first ingest
        (1, {}, True),
        (1, {0: 1}, False),
        (1, {9: 0, 10: 1}, False),  # numbers are not sorted as text
        (2, {0: 1}, True),
    ],
)
def test_what_the_newest_batch_has_not_taken_waits(lake, commits, batches, waits):
    for _ in range(commits):
        append(lake)
    for number, version in batches.items():
        batch(lake, version, number)
    assert has_waiting_rows(lake, STREAM) == waits


def test_an_empty_bronze_table_holds_nothing(lake):
    DeltaTable.create(lake.bronze(STREAM.source), pa.schema([("n", pa.int64())]))
    assert not has_waiting_rows(lake, STREAM)


def test_a_heartbeat_that_moves_nothing_is_worth_no_run_and_one_that_moves_is(lake):
    append(lake)
    batch(lake)
    rows = pa.table({"n": [1], "event_date": [FIRST_DAY]})
    for content, waits in (({KEEPALIVE: True}, False), ({}, True)):
        path = lake.bronze(STREAM.source)
        write_deltalake(path, rows, mode="append", commit_properties=of_ours(**content))
        assert has_waiting_rows(lake, STREAM) == waits


def test_a_run_is_complete_when_its_last_batch_left_no_watermark_for_the_next(lake):
    append(lake)
    path = lake.checkpoint(STREAM.name, 1)
    assert is_complete(lake, path)
    checkpoint = batch(lake)
    commit = checkpoint / "commits" / "0"
    for next_watermark, complete in ((7, False), (0, True)):
        commit.write_text(f'v1\n{{"nextBatchWatermarkMs":{next_watermark}}}')
        assert is_complete(lake, path) == complete


def test_another_bronze_table_is_left_to_the_run_to_refuse(lake):
    append(lake)
    checkpoint = batch(lake)
    offsets = checkpoint / "offsets" / "0"
    offsets.write_text(offsets.read_text().replace(str(bronze(lake).metadata().id), "another"))
    assert has_waiting_rows(lake, STREAM)


@pytest.mark.parametrize(
    ("log", "read"),
    [
        ('v1\n{}\n{"logOffset":3}', lambda lake, path: read_position(lake, f"{path}/offsets/0")),
        ("v1\n", lambda lake, path: batch_watermark_ms(lake, str(path), 0)),
    ],
)
def test_an_offset_log_of_something_else_is_named_with_what_mends_it(lake, log, read):
    append(lake)
    checkpoint = batch(lake)
    (checkpoint / "offsets" / "0").write_text(log)
    command = "./stateful rebuild user_counts --apply"
    with refused("unreadable_checkpoint", subject="checkpoints/user_counts", command=command):
        read(lake, checkpoint)
    assert has_waiting_rows(lake, STREAM)  # the run says so


WATERMARKS_MS = (0, 1_000, 1_500)  # of a batch; batch 2 has only begun


@pytest.fixture
def logs(lake: Lake) -> Path:
    """The logs of a checkpoint of three batches."""
    append(lake)
    for number, at_ms in enumerate(WATERMARKS_MS):
        is_committed = number < len(WATERMARKS_MS) - 1
        known = {
            "committed": is_committed,
            "watermarks_ms": (at_ms, (*WATERMARKS_MS, 0)[number + 1]),
        }
        write_position(lake, STREAM.name, 1, batch=number, **known)
    return Path(lake.checkpoint(STREAM.name, 1))


def test_the_newest_batch_is_that_which_was_finished(lake, logs):
    for stray in ("offsets/.3.crc", "offsets/3.tmp", "commits/notes.txt"):
        (logs / stray).write_text("not a batch")
    found = committed_batch(lake, read_generations(lake, STREAM.name))
    assert (found.batch_id, found.checkpoint) == (1, str(logs))
    assert (found.watermark_ms, found.next_watermark_ms) == WATERMARKS_MS[1:]


SPOILS = {
    "no checkpoint": (lambda path: rmtree(path), "nothing_there"),
    "no commit": (lambda path: rmtree(path / "commits"), "nothing_there"),
    "lost offsets": (lambda path: (path / "offsets/1").unlink(), "unreadable_checkpoint"),
    "an empty commit": (lambda path: (path / "commits/1").write_text(""), "unreadable_checkpoint"),
    "no text": (lambda path: (path / "offsets/1").write_bytes(b"\xff"), "unreadable_checkpoint"),
}


@pytest.mark.parametrize(("spoil", "code"), SPOILS.values(), ids=SPOILS)
def test_a_checkpoint_that_is_not_ours_is_one_line_and_no_jvm(
    lake, logs, monkeypatch, capsys, spoil, code
):
    spoil(logs)
    monkeypatch.setattr("include.run_local.run_job", lambda *_: pytest.fail("started a JVM"))
    before = files_in(lake)
    assert main(["inspect", STREAM.name, "--lake", lake.root]) == 2
    said = capsys.readouterr()
    assert said.err.endswith(f"({code})\n")
    assert (said.err.count("\n"), said.out) == (1, "")
    assert files_in(lake) == before


def files_in(lake: Lake) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in Path(lake.root).rglob("*") if file.is_file()}
