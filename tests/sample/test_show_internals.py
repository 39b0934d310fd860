"""`./stateful demo-internals`, run once: what docs/internals.md explains is what is printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import Row

from include.settings import PROJECT
from spark_jobs.internals.parts import CountsDifferError, counts_table
from spark_jobs.internals.queries import Ran

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.xdist_group("internals")]

MODULE = "include.sample.show_internals"


@pytest.fixture(scope="module")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def printed(temporary: Path) -> str:
    result = subprocess.run(
        [sys.executable, "-m", MODULE],
        cwd=PROJECT,
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return result.stdout


def part(printed: str, number: int) -> str:
    (found,) = (text for text in printed.split("\n== ") if text.startswith(f"{number}. "))
    return found


def rows_below(text: str, title: str) -> list[list[str]]:
    """The cells of the table that follows a line with that title, its names left out."""
    lines = text[text.index(title) :].splitlines()[2:]
    end = next((at for at, line in enumerate(lines) if not line.startswith("  ")), len(lines))
    return [re.split(r"  +", line.strip()) for line in lines[:end]]


def test_the_page_quotes_the_state_as_it_is_printed(printed):
    page = (PROJECT / "docs" / "internals.md").read_text()
    chapter = page[page.index("## 2.") : page.index("## 3.")]
    quoted = "".join(re.findall(r"```text\n(.*?)```", chapter, re.DOTALL)).splitlines()
    assert len(quoted) > 10
    assert not [line for line in quoted if line not in printed]


def test_it_is_readable_and_leaves_nothing_behind(printed, temporary):
    assert len(printed.splitlines()) < 250
    assert max(map(len, printed.splitlines())) < 140
    assert str(temporary) not in printed
    assert not list(temporary.glob("internals-*"))


def test_the_plans_name_the_stateful_operators_and_both_watermarks(printed):
    plain, ours = part(printed, 1).split("Ours (")
    for plan, operator in (
        (plain, "FlatMapGroupsInPandasWithState"),
        (ours, "TransformWithStateInPySpark"),
    ):
        words = " ".join(plan.split())
        assert f"!{operator} " in words
        assert "opId = 0, ver = 2, numPartitions = 2]" in words
        # The watermark of batch 1, for late rows, and that of batch 2, for timeouts.
        assert "2026-03-01T11:53:00Z, 2026-03-01T12:20:00Z" in words
    assert "hashpartitioning(device_id, 2), REQUIRED_BY_STATEFUL_OPERATOR" in plain
    assert "hashpartitioning(bucket, 2), REQUIRED_BY_STATEFUL_OPERATOR" in ours


def test_the_plain_operator_stores_a_row_for_each_key_until_its_timeout(printed):
    states = part(printed, 2)
    rows = rows_below(states, "statestore, batchId=1")
    assert {row[1]: row[2:] for row in rows} == {
        "1": ['{"count":3,"newest_ms":2026-03-01T12:30:00Z}', "2026-03-01T12:45:00Z"],
        "2": ['{"count":2,"newest_ms":2026-03-01T12:22:00Z}', "2026-03-01T12:37:00Z"],
        "3": ['{"count":1,"newest_ms":2026-03-01T12:03:00Z}', "2026-03-01T12:18:00Z"],
    }
    (last,) = rows_below(states, "statestore, after the last batch:")
    assert last[1:] == [
        "1",
        '{"count":4,"newest_ms":2026-03-01T12:50:00Z}',
        "2026-03-01T13:05:00Z",
    ]
    (metadata,) = rows_below(states, "Plain operator, state-metadata")
    assert metadata == ["applyInPandasWithState", "default", "2", "0", "3"]


def test_ours_stores_a_row_for_each_bucket_and_unpacks_it_by_key(printed):
    states = part(printed, 2)
    by_key = {
        row[1]: row[2:4] for row in rows_below(states, "engines.checkpointed_states.read_states")
    }
    assert by_key == {
        "1": ['{"signals":3}', "2026-03-01T12:30:00Z"],
        "2": ['{"signals":2}', "2026-03-01T12:22:00Z"],
        "3": ['{"signals":1}', "2026-03-01T12:03:00Z"],
    }
    stored = rows_below(states, "stateVarName=bucket_state")
    assert len(rows_below(states, "stateVarName=bucket_keys")) == 3
    assert len(stored) == 3
    # The signal of 12:50 waits for the watermark, and its bucket's timer with it: nulls are blank.
    waiting = [row for row in stored if len(row) == 8]
    assert [row[4:6] for row in waiting] == [["1", "1"]]  # keys, waiting
    timers = rows_below(states, "readRegisteredTimers")
    assert [row[1] for row in waiting] == [row[1] for row in timers]
    assert [row[3] for row in waiting] == [row[2] for row in timers] == ["2026-03-01T12:50:00Z"]
    (metadata,) = rows_below(states, "Ours, state-metadata")
    assert metadata[0] == "transformWithStateInPySparkExec"
    assert metadata[-1] == "bucket_keys bucket_state"


def test_progress_counts_the_late_row_the_timeouts_and_the_batch_without_data(printed):
    progress = part(printed, 3)
    rows = [row[:-1] for row in rows_below(progress, "Plain operator:")]  # but for the time
    names = ("rows in", "total", "updated", "removed", "dropped")
    assert [dict(zip(names, map(int, row[2:]), strict=True)) for row in rows] == [
        {"rows in": 4, "total": 3, "updated": 3, "removed": 0, "dropped": 0},
        {"rows in": 2, "total": 3, "updated": 2, "removed": 0, "dropped": 0},
        {"rows in": 3, "total": 2, "updated": 2, "removed": 1, "dropped": 1},
        {"rows in": 0, "total": 1, "updated": 0, "removed": 1, "dropped": 0},
    ]
    assert [row[1][11:16] for row in rows] == ["00:00", "11:53", "12:20", "12:40"]


def test_ours_drops_nothing_in_spark_and_finds_two_rows_late(printed):
    progress = part(printed, 3)
    assert [row[6] for row in rows_below(progress, "Ours:")] == ["0"] * 4
    folded = [list(map(int, row)) for row in rows_below(progress, "Ours, from the rows")]
    assert sum(row[2] for row in folded) == 9
    assert [row[0] for row in folded for _ in range(row[3])] == [2, 2]
    assert sum(row[4] for row in folded) == 6
    # A bucket without rows in the batch: its timer called it.
    assert [row for row in folded if row[2] == 0] == [[2, 4, 0, 0, 1, -1, 1]]


def test_the_debug_log_shows_new_data_then_all_state_then_timeouts(printed):
    plain, rest = part(printed, 4).split("Plain operator on the HDFS-backed store")
    steps = [
        "DEBUG MicroBatchExecution: Running batch 2",
        "INFO RocksDB [partition 1]: Loaded 2",
        "ApplyInPandasWithStatePythonRunner: Starting Python task execution",
        "INFO RocksDB [partition 1]: Getting iterator from version 2",
        "ApplyInPandasWithStatePythonRunner: Starting Python task execution",
        "INFO RocksDB [partition 1]: Committed 3",
        "INFO WatermarkTracker: Updating event-time watermark from 2026-03-01T12:20:00Z",
        "TRACE MicroBatchExecution: noDataBatchesEnabled = true, "
        "lastExecutionRequiresAnotherBatch = true, isNewDataAvailable = false",
    ]
    assert re.search(".*".join(map(re.escape, steps)), " ".join(plain.split()))
    assert "NativeRocksDB" not in plain
    hdfs, ours = rest.split("Ours, ")
    assert "INFO  HDFSBackedStateStoreProvider [partition 1]: Committed version 3" in hdfs
    assert "TransformWithStateInPySparkStateServer: set handle state to Timer Processed" in ours


def test_both_providers_counted_what_plain_python_counts_and_stored_it_otherwise(printed):
    providers = part(printed, 5)
    table = [line.split() for line in providers.splitlines() if re.match(r"  \d  +\d  ", line)]
    assert table == [["1", "4", "4", "4"], ["2", "3", "3", "3"], ["3", "1", "1", "1"]]
    files = providers[providers.index("state files") :]
    assert len(re.findall(r"\d\.delta  +\d+ ", files)) == 8
    assert len(re.findall(r"\d\.snapshot  +\d+ ", files)) == 2
    assert len(re.findall(r"\d\.changelog  +\d+$", files, re.MULTILINE)) == 8
    assert len(re.findall(r"\d\.zip  +\d+$", files, re.MULTILINE)) == 4


@pytest.mark.parametrize(
    ("rocksdb", "message"),
    [({0: [(1, 1)], 1: [(1, 3)]}, "RocksDB {1: 3}"), ({0: [(1, 2)]}, "in other batches")],
)
def test_counts_that_differ_end_the_demo(rocksdb, message):
    hdfs = ran({0: [(1, 1)], 1: [(1, 2)]})
    assert "1          2             2            2" in counts_table({1: 2}, hdfs, hdfs)
    with pytest.raises(CountsDifferError, match=re.escape(message)):
        counts_table({1: 2}, hdfs, ran(rocksdb))


def ran(outputs: dict[int, list[tuple[int, int]]]) -> Ran:
    row = Row("device_id", "count")
    return Ran(
        "plain", "", {batch: [row(*cells) for cells in rows] for batch, rows in outputs.items()}
    )
