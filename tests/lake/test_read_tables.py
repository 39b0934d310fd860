"""A table that stays open for its readers is the one that lies there."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from include.lake.delta_log import dataset_of, table_to_read


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


def test_who_asks_again_has_the_same_until_somebody_commits(table):
    opened = table_to_read(table)
    assert table_to_read(table) is opened
    append(table, 3)
    assert table_to_read(table).version() == 3
    assert opened.version() == 2
    assert numbers(table) == [0, 1, 2, 3]


def test_an_older_copy_that_is_put_back_is_read(table, tmp_path):
    shutil.copytree(table, tmp_path / "copy")
    append(table, 3)
    assert numbers(table) == [0, 1, 2, 3]
    shutil.rmtree(table)
    shutil.copytree(tmp_path / "copy", table)
    assert table_to_read(table).version() == 2
    assert numbers(table) == [0, 1, 2]


def test_another_commit_of_the_same_number_is_read(table):
    assert numbers(table) == [0, 1, 2]
    Path(table, "_delta_log", f"{2:020}.json").unlink()
    append(table, 7)
    assert numbers(table) == [0, 1, 7]
    assert table_to_read(table, 2).version() == 2
    assert dataset_of(table).count_rows() == 3


def test_an_older_version_is_read_until_its_files_go(table):
    assert table_to_read(table, 1).version() == 1
    append(table, 3)
    assert table_to_read(table, 1).version() == 1
    Path(table, "_delta_log", f"{0:020}.json").unlink()
    with pytest.raises(DeltaError):
        table_to_read(table, 1)


def test_a_damaged_log_is_told_of_though_the_table_was_open(table):
    table_to_read(table)
    Path(table, "_delta_log", f"{2:020}.json").write_text("no commit")
    with pytest.raises(DeltaError):
        table_to_read(table)
