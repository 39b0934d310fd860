"""The batch whose state is read, from a checkpoint's logs; and what `./stateful inspect` says of others."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from include.cli.__main__ import main
from include.lake.generations import read_generations
from include.lake.paths import Lake
from include.stream.checkpoint import committed_batch

STREAM = "user_counts"
WATERMARKS_MS = {0: 0, 1: 1_000, 2: 1_500}  # of a batch; batch 2 has only begun


def checkpoint(lake: Lake) -> Path:
    return Path(lake.checkpoint(STREAM, 1))


@pytest.fixture
def logs(lake) -> Lake:
    """A lake with a checkpoint's logs, as Spark writes them."""
    for batch, watermark_ms in WATERMARKS_MS.items():
        write(lake, f"offsets/{batch}", {"batchWatermarkMs": watermark_ms}, "{}")
        if batch + 1 in WATERMARKS_MS:
            write(lake, f"commits/{batch}", {"nextBatchWatermarkMs": WATERMARKS_MS[batch + 1]})
    return lake


def write(lake: Lake, log: str, settings: dict[str, Any], *sources: str) -> None:
    path = checkpoint(lake) / log
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", json.dumps(settings), *sources]))


def test_it_is_the_newest_that_was_finished(logs):
    for stray in ("offsets/.3.crc", "offsets/3.tmp", "commits/notes.txt"):
        (checkpoint(logs) / stray).write_text("not a batch")
    batch = committed_batch(logs, read_generations(logs, STREAM))
    found = (batch.batch_id, batch.watermark_ms, batch.next_watermark_ms)
    assert found == (1, WATERMARKS_MS[1], WATERMARKS_MS[2])
    assert batch.checkpoint == str(checkpoint(logs))


def log_lines(lake: Lake, log: str) -> tuple[Path, list[str]]:
    path = checkpoint(lake) / log / "1"
    return path, path.read_text().splitlines()


def lose_offsets(lake: Lake) -> None:
    log_lines(lake, "offsets")[0].unlink()


def empty_commit(lake: Lake) -> None:
    log_lines(lake, "commits")[0].write_text("")


def garble_offsets(lake: Lake) -> None:
    log_lines(lake, "offsets")[0].write_bytes(b"\xff\xfe")


def lose_commits(lake: Lake) -> None:
    shutil.rmtree(checkpoint(lake) / "commits")


def lose_checkpoint(lake: Lake) -> None:
    shutil.rmtree(checkpoint(lake))


LOST = (lose_checkpoint, lose_commits)
SPOILED = (lose_offsets, empty_commit, garble_offsets)


@pytest.mark.parametrize("spoil", [*LOST, *SPOILED])
def test_a_checkpoint_that_is_not_ours_is_one_line_and_no_jvm(logs, monkeypatch, capsys, spoil):
    spoil(logs)
    monkeypatch.setattr("include.run_local.run_job", lambda *_: pytest.fail("started a JVM"))
    before = files_in(logs)
    assert main(["inspect", "user_counts", "--lake", logs.root]) == 2
    said = capsys.readouterr()
    code = "nothing_there" if spoil in LOST else "unreadable_checkpoint"
    assert said.err.endswith(f"({code})\n")
    assert (said.err.count("\n"), said.out) == (1, "")
    assert files_in(logs) == before


def files_in(lake: Lake) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in Path(lake.root).rglob("*") if file.is_file()}
