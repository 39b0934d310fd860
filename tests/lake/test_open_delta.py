"""Tables of whose log a file is there by name, and cannot be looked at: no older version is taken."""

import ast
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from include.coverage.trust import table_version
from include.lake.delta_log import (
    AGAIN,
    dataset_of,
    delta_table,
    open_rows_of,
    open_table,
    told_of,
    unbroken,
)
from include.lake.how_to_mend import subject_of
from include.lake.ops import append_ops, read_ops
from include.lake.paths import Lake
from include.lake.table_seal import seal, what_changed
from include.plans.reseed_plan import refuse_unreadable_table
from tests.refused import refused
from tests.unreachable import leave_out

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def table(lake: Lake) -> str:
    path = lake.table("user_counts")
    for number in range(4):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    return path


def log_of(table: str, name: str) -> Path:
    return Path(table, "_delta_log", name)


def commit(table: str, version: int) -> Path:
    return log_of(table, f"{version:020}.json")


@pytest.mark.parametrize("oldest_left_out", [2, 3])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_no_older_version_is_opened(table: str, oldest_left_out: int, scheme: str):
    with leave_out(*(commit(table, version) for version in range(oldest_left_out, 4))):
        for opens in (delta_table, open_table, dataset_of):
            with pytest.raises(OSError) as raised:
                opens(f"{scheme}{table}")
            assert raised.value.errno == errno.EIO
    assert delta_table(f"{scheme}{table}").version() == 3


def test_nothing_is_judged_by_an_older_version(lake: Lake, table: str):
    seal(lake, "tables/user_counts")
    append_ops(lake, "runs", [{"run_id": "a"}])
    runs = Path(lake.ops("runs"))
    with leave_out(commit(table, 3), max(runs.glob("_delta_log/*.json"))):
        for judge in (
            lambda: table_version(lake, "user_counts"),
            lambda: refuse_unreadable_table(lake, "user_counts"),
            lambda: read_ops(lake, "runs"),
        ):
            with pytest.raises(OSError) as raised:
                judge()
            assert raised.value.errno == errno.EIO
    assert what_changed(lake, "tables/user_counts") is None


def test_what_is_committed_while_a_table_is_opened_is_not_missed(table: str, monkeypatch):
    """It may be opened, or not."""
    names = os.scandir

    def list_then_commit(path: str):
        found = names(path)
        write_deltalake(table, pa.table({"n": [4]}), mode="append")
        return found

    monkeypatch.setattr(os, "scandir", list_then_commit)
    assert delta_table(table).version() in (3, 4)


def test_nothing_opens_a_table_but_there():
    """By whatever name it was imported; Spark's own has no constructor that is called."""
    for file in [*ROOT.glob("include/**/*.py"), *ROOT.glob("spark_jobs/**/*.py")]:
        tree = ast.parse(file.read_text())
        names = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "deltalake"
            for alias in node.names
            if alias.name == "DeltaTable"
        }
        called = {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not names & called or file.name == "delta_log.py", file


@contextmanager
def without_stat(left_out: Path, number: int) -> Iterator[None]:
    """`leave_out`, with the error that the system has for it."""

    def stat(path: Any, **named: Any) -> os.stat_result:
        if str(path).startswith(str(left_out)):
            raise OSError(number, os.strerror(number), str(path))
        return of_system(path, **named)

    of_system = os.stat
    with leave_out(left_out), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "stat", stat)
        yield


def write_by_path(table: str) -> None:
    with unbroken(table):
        write_deltalake(table, pa.table({"n": [4]}), mode="append")


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE])
@pytest.mark.parametrize("name", [f"{1:020}.checkpoint.parquet", f"{2:020}.json", f"{3:020}.json"])
def test_what_the_disk_does_not_tell_of_is_no_damage(lake, table, name: str, number: int):
    DeltaTable(table, version=1).create_checkpoint()
    with without_stat(log_of(table, name), number):
        for opens in (open_table, lambda path: open_rows_of(lake, path, 3), write_by_path):
            with pytest.raises(OSError) as raised:
                opens(table)
            assert raised.value.errno == number
            assert told_of(raised.value).endswith(AGAIN)


def test_what_is_damaged_is_said_so_where_the_disk_tells_of_all(table: str):
    DeltaTable(table, version=1).create_checkpoint()
    log_of(table, f"{1:020}.checkpoint.parquet").unlink()
    with refused("unreadable_table", subject=subject_of(table)):
        open_table(table)
