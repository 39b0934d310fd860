"""The ops tables: rows once, and many streams at the same time."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.table import TableAlterer

from include.job import recorded_run
from include.lake import ops
from include.lake.delta_log import lying_aside
from include.lake.ops import append_ops, read_ops
from tests.open_files import no_more_files

pytestmark = pytest.mark.slow


def batch(stream: str, batch_id: int) -> dict[str, object]:
    return {"stream": stream, "generation": 1, "batch_id": batch_id, "rows_in": batch_id}


def test_an_unknown_column_is_refused(lake):
    with pytest.raises(ValueError):
        append_ops(lake, "batches", [{"rows_inn": 1}])


def test_streams_that_write_at_the_same_time_lose_nothing(lake):
    def run(stream: str) -> None:
        for batch_id in range(4):
            append_ops(lake, "batches", [batch(stream, batch_id)])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, ["a", "b", "c"]))
    rows = read_ops(lake, "batches").to_pylist()
    assert sorted((row["stream"], row["batch_id"]) for row in rows) == [
        (stream, batch_id) for stream in "abc" for batch_id in range(4)
    ]


def test_columns_rows_and_times_are_read_as_asked_for(lake):
    at = [datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2, 3)]
    append_ops(lake, "batches", [batch("a", n) | {"committed_at": at[n]} for n in range(3)])
    append_ops(lake, "batches", [batch("b", 3) | {"committed_at": at[2]}])
    since = pc.field("committed_at") >= pa.scalar(at[1])
    rows = read_ops(lake, "batches", {"stream": "a"}, ["rows_in", "memory_mb"], since)
    assert sorted(rows.column_names) == ["memory_mb", "rows_in", "stream"]
    assert sorted(rows["rows_in"].to_pylist()) == [1, 2]
    assert read_ops(lake, "runs", columns=["run_id"]).column_names == ["run_id"]


TRACEBACK = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
Traceback (most recent call last):
  File "worker.py", line 1, in main
include.fold.calls.StateFunctionError: count failed for user_id 'ann': KeyError: 'x'
JVM stacktrace:
"""


@pytest.mark.parametrize(
    ("message", "recorded"),
    [
        (TRACEBACK, "StateFunctionError: count failed for user_id 'ann'"),
        ("no bronze table\nat all", "no bronze table"),
        ("", "RuntimeError"),
    ],
)
def test_a_failed_run_is_recorded_with_its_cause(lake, message, recorded):
    with pytest.raises(RuntimeError), recorded_run(lake, "run_stream", "a", None):
        raise RuntimeError(message)
    (run,) = read_ops(lake, "runs").to_pylist()
    assert run["outcome"] == "failed"
    assert run["error"].startswith(recorded)
    assert run["started_at"] <= run["ended_at"] <= datetime.now(UTC)


def test_of_two_that_join_the_files_at_once_one_does(lake, monkeypatch):
    """delta-rs lets two compactions through, and then each row is there twice."""
    for number in range(3):
        append_ops(lake, "runs", [{"run_id": f"r{number}"}])
    claim = TableAlterer.set_table_properties

    def another_comes(*args, **kwargs):
        claim(*args, **kwargs)
        monkeypatch.undo()
        ops.compact(lake.ops("runs"))

    monkeypatch.setattr(TableAlterer, "set_table_properties", another_comes)
    with pytest.raises(CommitFailedError):
        ops.compact(lake.ops("runs"))
    assert sorted(read_ops(lake, "runs")["run_id"].to_pylist()) == ["r0", "r1", "r2"]


def test_a_row_that_comes_while_the_files_are_joined_is_there_once(lake, monkeypatch):
    append_ops(lake, "runs", [{"run_id": "r0"}])
    write = ops.write_deltalake

    def joined_meanwhile(table, *args, **kwargs):
        monkeypatch.setattr(ops, "write_deltalake", write)
        ops.compact(lake.ops("runs"))
        write(table, *args, **kwargs)

    monkeypatch.setattr(ops, "write_deltalake", joined_meanwhile)
    append_ops(lake, "runs", [{"run_id": "r1"}])
    assert sorted(read_ops(lake, "runs")["run_id"].to_pylist()) == ["r0", "r1"]


HARMS = {
    "a lost file": lambda table: next(table.glob("*.parquet")).unlink(),
    "a file cut off": lambda table: next(table.glob("*.parquet")).write_bytes(b"PAR1"),
    "a log that is none": lambda table: next((table / "_delta_log").glob("*1.json")).write_text(
        "{"
    ),
}
WRITES = {
    "append": lambda lake: append_ops(lake, "runs", [{"run_id": "b"}]),
    "read": lambda lake: read_ops(lake, "runs"),
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_damaged_table_is_moved_aside_and_begun_anew(lake, harm, write):
    append_ops(lake, "runs", [{"run_id": "a"}])
    harm(Path(lake.ops("runs")))
    write(lake)
    read_ops(lake, "runs")  # an append looks at no file of rows
    append_ops(lake, "runs", [{"run_id": "c"}])
    assert "a" not in read_ops(lake, "runs")["run_id"].to_pylist()
    assert "c" in read_ops(lake, "runs")["run_id"].to_pylist()
    (folder,) = lying_aside(lake)
    assert Path(lake.root, folder, "ops", "runs", "_delta_log").is_dir()


def test_a_table_that_cannot_be_had_just_now_is_not_moved(lake):
    append_ops(lake, "runs", [{"run_id": "a"}])
    with no_more_files(), pytest.raises((DeltaError, OSError)):
        read_ops(lake, "runs")
    assert lying_aside(lake) == []
