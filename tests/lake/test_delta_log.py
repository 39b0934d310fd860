"""Delta's log: odd characters, versions that its clean-up has taken away, damage; who opens tables, and which ones stay open."""

import errno
import re
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import example, given
from hypothesis import strategies as st

from include.lake.delta_log import (
    dataset_of,
    is_of_machine,
    open_rows_of,
    open_table,
    read_actions,
    unbroken,
    why_unreadable,
)
from include.lake.errors import LakeError, subject_of
from include.lake.generations import read_generations
from include.lake.paths import Lake
from include.lake.table import Table
from include.stream.open_stream import _has_data
from tests.examples import examples
from tests.open_files import no_more_files
from tests.refused import refused

ROOT = Path(__file__).resolve().parents[2]
# What str.splitlines() takes for ends of lines; JSON leaves most of them as they are.
LINE_ENDS = ["\u2028", "\u2029", "\x85", "\x0b", "\x1c", "\r"]


@pytest.mark.parametrize("odd", LINE_ENDS)
def test_a_row_with_an_odd_line_end_does_not_cut_an_action(lake, odd):
    path = lake.bronze("user_events")
    write_deltalake(path, pa.table({"user_id": [f"ann{odd}x"]}))
    (add,) = [action["add"] for action in read_actions(lake, path, 0) if "add" in action]
    assert odd in add["stats"] or "\\u" in add["stats"] or "\\r" in add["stats"]
    assert _has_data(lake, path, 0)


def rows_of(table: DeltaTable) -> list[int]:
    return sorted(table.to_pyarrow_table()["n"].to_pylist())


def commit(path: str, kind: str) -> list[int]:
    """One more commit at least; the rows after it."""
    if kind == "rows":
        write_deltalake(path, pa.table({"n": [DeltaTable(path).version()]}), mode="append")
    elif kind == "optimize":
        DeltaTable(path).optimize.compact()
    elif kind == "delete":
        DeltaTable(path).delete("n = 0")
    else:
        DeltaTable(path).create_checkpoint()
    return rows_of(DeltaTable(path))


def clean_up(path: str, before: int) -> None:
    """Clean the log up as Delta does: behind a checkpoint. Older checkpoints may outlive their commits."""
    DeltaTable(path).create_checkpoint()
    for file in Path(path, "_delta_log").glob("*.json"):
        if int(file.stem) < before:
            file.unlink()


@examples(40)
@example(kinds=["rows", "checkpoint", "rows", "optimize"], retained=1)
@example(kinds=["rows", "checkpoint", "rows", "rows"], retained=1)
@example(kinds=["rows", "rows", "delete"], retained=1)
@given(
    st.lists(st.sampled_from(["rows", "rows", "optimize", "delete", "checkpoint"]), max_size=12),
    st.integers(1, 8),
)
def test_the_rows_of_a_version_are_found_or_it_is_said_that_they_are_gone(kinds, retained):
    with tempfile.TemporaryDirectory() as root:
        lake = Lake(root)
        path = lake.bronze("user_events")
        write_deltalake(path, pa.table({"n": [-1]}))
        rows = {0: [-1]}
        for kind in kinds:
            after = commit(path, kind)
            rows[DeltaTable(path).version()] = after
        newest = DeltaTable(path).version()
        clean_up(path, newest + 1 - retained)
        for version, expected in rows.items():
            try:
                found = rows_of(open_rows_of(lake, path, version))
            except LakeError:
                with refused("cleaned_up_version", subject=subject_of(path)):
                    open_rows_of(lake, path, version)
                with pytest.raises(DeltaError):
                    DeltaTable(path, version=version)
                assert version < newest
            else:
                assert found == expected


def test_a_version_that_a_table_put_back_does_not_have_yet_names_the_way_out(lake):
    path = lake.bronze("user_events")
    for number in range(3):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    max(Path(path, "_delta_log").glob("*.json")).unlink()
    with refused("unreadable_table", subject=subject_of(path)):
        open_rows_of(lake, path, 2)


@pytest.mark.parametrize(
    "read",
    [
        lambda lake, stream: open_table(lake.table(stream)),
        lambda lake, stream: Table.open(lake, lake.table(stream)).record(),
        lambda lake, stream: open_rows_of(lake, lake.table(stream), 0),
        lambda lake, stream: why_unreadable(lake, lake.table(stream)),
        read_generations,
    ],
)
def test_a_machine_without_files_to_open_is_no_damage(lake, read):
    write_deltalake(lake.table("user_counts"), pa.table({"n": [1]}))
    with no_more_files(), pytest.raises((DeltaError, OSError)):
        read(lake, "user_counts")


GENERIC = "Kernel error -> Generic S3 error\n  ↳ Error performing GET http://a/b/t in 1ms - "
NO_2XX = "Server returned non-2xx status code\n   ↳ "
AWS = "key 'a' in bucket 'b': AWS Error"
# As Python, delta-rs 1.6.6, Arrow 26, Spark, and a store's answers by them, tell of it.
NOT_NOW = [
    OSError(errno.ENOSPC, "No space left on device", "/lake/bronze"),
    OSError(errno.ESTALE, "Stale file handle", "/lake/bronze"),
    DeltaError("Unable to open /quota/x.parquet: Read-only file system (os error 30)"),
    DeltaError("The operation lacked the necessary privileges to complete for path a"),
    OSError("Kernel error\n  ↳ Unable to open file a\n  ↳ Too many open files (os error 24)\n"),
    DeltaError('Error: Os { code: 13, kind: Uncategorized, message: "Permission denied" }'),
    TimeoutError("timed out"),
    ConnectionResetError("by peer"),
    pa.ArrowMemoryError("malloc of size 64 failed"),
    OSError("java.io.FileNotFoundException: /lake/bronze/a (Permission denied)\n\tat java"),
    OSError("java.io.IOException: Input/output error\n\tat java.base/sun.nio.ch.FileDispatcher"),
    OSError("OSError: [Errno 28] No space left on device: '/tmp/blockmgr'\n"),
    OSError(
        f"{GENERIC}{NO_2XX}503 Service Unavailable\n    ↳ <Error><Code>SlowDown</Code></Error>"
    ),
    OSError(f"{GENERIC}HTTP error\n   ↳ error sending request\n    ↳ operation timed out\n"),
    OSError(f"{AWS} UNKNOWN (HTTP status 503) during HeadObject operation"),
    OSError(f"{AWS} ACCESS_DENIED during HeadObject operation: No response body."),
]
# A path or a value may be of the same words, and a worker that died of damage resets its connection.
DAMAGE = [
    DeltaError("/quota/x.parquet not found"),
    FileNotFoundError(2, "Failed to open local file '/Permission denied/a'"),
    DeltaError("Object at location /Read-only file system/bronze/a not found"),
    DeltaError("Cannot cast string 'No space left on device' to value of Int64 type"),
    DeltaError('Cannot cast string { message: "Permission denied" } to value'),
    DeltaError("Unable to open file a: Is a directory (os error 21)"),
    pa.ArrowInvalid("Parquet magic bytes not found in footer"),
    OSError("Couldn't deserialize thrift: TProtocolException: Invalid data"),
    OSError("java.io.FileNotFoundException: File /Permission denied/a does not exist"),
    OSError("java.net.SocketException: Connection reset\n\tat java.base/sun.nio"),
    OSError(f"{GENERIC}{NO_2XX}416 Range Not Satisfiable\n"),
    OSError(f"{AWS} UNKNOWN (HTTP status 416) during GetObject operation"),
    OSError(f"{AWS} NO_SUCH_KEY during GetObject operation: m"),
]


@pytest.mark.parametrize("error", [*NOT_NOW, *DAMAGE])
def test_what_the_machine_or_a_store_refuses_is_told_apart(error):
    is_so = error in NOT_NOW
    assert is_of_machine(error) == is_so
    with pytest.raises(type(error) if is_so else LakeError), unbroken("/lake/bronze/signals"):
        raise error


def test_nothing_opens_a_table_but_there():
    """By either name; Spark's own has no constructor that is called."""
    files = [*ROOT.glob("include/**/*.py"), *ROOT.glob("spark_jobs/**/*.py")]
    opens = re.compile(r"(?<!case )\b(Delta|Open)Table\(")
    opening = {file.name for file in files if opens.search(file.read_text())}
    assert opening == {"delta_log.py"}


@pytest.fixture
def table(tmp_path) -> str:
    """Three commits, of the rows 0, 1 and 2."""
    path = str(tmp_path / "table")
    for number in range(3):
        append(path, number)
    return path


def append(path: str, *numbers: int) -> None:
    write_deltalake(path, pa.table({"number": pa.array(numbers, pa.int64())}), mode="append")


def numbers(path: str) -> list[int]:
    return sorted(dataset_of(path).to_table()["number"].to_pylist())


def test_a_handle_is_shared_until_the_log_is_another(table, tmp_path):
    opened, older = open_table(table), open_table(table, 1)
    assert open_table(table) is opened
    shutil.copytree(table, tmp_path / "copy")
    append(table, 3)
    assert (open_table(table).version(), opened.version()) == (3, 2)
    assert numbers(table) == [0, 1, 2, 3]
    shutil.rmtree(table)
    shutil.copytree(tmp_path / "copy", table)  # an older copy that is put back
    assert (open_table(table).version(), numbers(table)) == (2, [0, 1, 2])
    Path(table, "_delta_log", f"{2:020}.json").unlink()
    append(table, 7)  # another commit of the same number
    assert (open_table(table).version(), numbers(table)) == (2, [0, 1, 7])
    assert open_table(table, 1).version() == older.version() == 1
    Path(table, "_delta_log", f"{0:020}.json").unlink()
    with refused("unreadable_table"):
        open_table(table, 1)
