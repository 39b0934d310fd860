"""Delta's log: lines with odd characters, and versions that its clean-up has taken away."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import example, given
from hypothesis import strategies as st

from include.coverage.trust import table_version
from include.lake.delta_log import is_of_machine, open_rows_of, open_table, read_actions, unbroken
from include.lake.paths import Lake, LakeError
from include.plans.reseed_base import refuse_unreadable_table
from include.plans.waiting_rows import _has_data
from tests.examples import examples
from tests.open_files import no_more_files

# What str.splitlines() takes for ends of lines; JSON leaves most of them as they are.
LINE_ENDS = ["\u2028", "\u2029", "\x85", "\x0b", "\x1c", "\r"]


@pytest.mark.parametrize("odd", LINE_ENDS)
def test_a_row_with_an_odd_line_end_does_not_cut_an_action(lake, odd):
    path = lake.bronze("user_events")
    write_deltalake(path, pa.table({"user_id": [f"ann{odd}x"]}))
    (add,) = [action["add"] for action in read_actions(lake, path, 0) if "add" in action]
    assert odd in add["stats"] or "\\u" in add["stats"] or "\\r" in add["stats"]
    assert _has_data(lake, path, 0)


def test_a_commit_that_was_cleaned_up_is_not_found(lake):
    with pytest.raises(FileNotFoundError):
        read_actions(lake, lake.bronze("user_events"), 7)


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
    """As Delta does: behind a checkpoint. Older checkpoints may outlive their commits."""
    DeltaTable(path).create_checkpoint()
    for file in Path(path, "_delta_log").glob("*.json"):
        if int(file.stem) < before:
            file.unlink()


@examples(40)
@example(kinds=["rows", "checkpoint", "rows", "optimize"], kept=1)
@example(kinds=["rows", "checkpoint", "rows", "rows"], kept=1)
@example(kinds=["rows", "rows", "delete"], kept=1)
@given(
    st.lists(st.sampled_from(["rows", "rows", "optimize", "delete", "checkpoint"]), max_size=12),
    st.integers(1, 8),
)
def test_the_rows_of_a_version_are_found_or_it_is_said_that_they_are_gone(kinds, kept):
    with tempfile.TemporaryDirectory() as root:
        lake = Lake(root)
        path = lake.bronze("user_events")
        write_deltalake(path, pa.table({"n": [-1]}))
        rows = {0: [-1]}
        for kind in kinds:
            after = commit(path, kind)
            rows[DeltaTable(path).version()] = after
        newest = DeltaTable(path).version()
        clean_up(path, newest + 1 - kept)
        for version, expected in rows.items():
            try:
                found = rows_of(open_rows_of(lake, path, version))
            except LakeError:
                with pytest.raises(DeltaError):
                    DeltaTable(path, version=version)
                assert version < newest
            else:
                assert found == expected


@pytest.mark.parametrize("version", [3, 4])
def test_a_version_before_commits_without_rows_is_as_good_as_they_are(lake, version):
    path = lake.bronze("user_events")
    for number in range(4):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    assert commit(path, "optimize") == [0, 1, 2, 3]
    clean_up(path, before=4)
    assert rows_of(open_rows_of(lake, path, version)) == [0, 1, 2, 3]
    with pytest.raises(LakeError, match=r"has taken version 2 away.*run the stream"):
        open_rows_of(lake, path, 2)


def test_a_version_that_a_table_put_back_does_not_have_yet_names_the_way_out(lake):
    path = lake.bronze("user_events")
    for number in range(3):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    max(Path(path, "_delta_log").glob("*.json")).unlink()
    with pytest.raises(LakeError, match=r"ends at version 1, but version 2 .*set-aside bronze/"):
        open_rows_of(lake, path, 2)


@pytest.mark.parametrize(
    "read",
    [
        lambda lake, stream: open_table(lake.table(stream)),
        lambda lake, stream: open_rows_of(lake, lake.table(stream), 0),
        refuse_unreadable_table,
        table_version,
    ],
)
def test_a_machine_without_files_to_open_is_no_damage(lake, read):
    write_deltalake(lake.table("user_counts"), pa.table({"n": [1]}))
    with no_more_files(), pytest.raises((DeltaError, OSError), match="Too many open files"):
        read(lake, "user_counts")


@pytest.mark.parametrize(
    ("error", "is_so"),
    [
        (OSError(28, "No space left on device", "/lake/bronze"), True),
        (DeltaError("Unable to open /quota/x.parquet: Read-only file system (os error 30)"), True),
        (DeltaError("The operation lacked the necessary privileges to complete for path a"), True),
        (DeltaError("/quota/x.parquet not found"), False),
    ],
)
def test_what_the_machine_or_a_store_refuses_is_told_apart(error, is_so):
    assert is_of_machine(error) == is_so
    with pytest.raises(type(error) if is_so else LakeError), unbroken("/lake/bronze/signals"):
        raise error
