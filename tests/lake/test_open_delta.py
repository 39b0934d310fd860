"""One place opens tables, and says of a damaged log that it is one."""

import ast
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from include.lake.delta_log import open_table
from include.lake.errors import subject_of
from include.lake.paths import Lake
from tests.refused import refused

ROOT = Path(__file__).resolve().parents[2]


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


def test_a_damaged_log_is_said_to_be_one(lake: Lake):
    table = lake.table("user_counts")
    for number in range(4):
        write_deltalake(table, pa.table({"n": [number]}), mode="append")
    DeltaTable(table, version=1).create_checkpoint()
    Path(table, "_delta_log", f"{1:020}.checkpoint.parquet").unlink()
    with refused("unreadable_table", subject=subject_of(table)):
        open_table(table)
