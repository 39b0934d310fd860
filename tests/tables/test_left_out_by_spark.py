"""Spark's writes to a table of which the disk does not tell all commits: none of them is replaced."""

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from include.lake.paths import Lake
from spark_jobs.maintain_table import vacuum
from spark_jobs.tables.product import append_once, replace_rows
from spark_jobs.tables.savepoint_rows import delete_rows
from tests.unreachable import leave_out

pytestmark = pytest.mark.spark


def commits_of(table: str) -> dict[str, str]:
    return {file.name: file.read_text() for file in Path(table, "_delta_log").glob("*.json")}


@pytest.fixture
def table(spark: SparkSession, lake: Lake) -> str:
    path = lake.table("user_counts")
    for number in range(3):
        rows = spark.range(number, number + 1).selectExpr("id AS n", "'a' AS savepoint_id")
        rows.write.format("delta").mode("append").save(path)
    return path


@pytest.mark.parametrize(
    "write",
    [
        lambda rows, path: append_once(rows, path, "a", 0),
        lambda rows, path: replace_rows(rows, path, "n = 7", "{}"),
        lambda rows, path: delete_rows(rows.sparkSession, path, ["a"]),
        lambda rows, path: vacuum(rows.sparkSession, path),
    ],
)
def test_a_commit_that_the_disk_does_not_tell_of_is_not_replaced(
    spark: SparkSession, table: str, write: Callable[[DataFrame, str], object]
):
    before = commits_of(table)
    newest = Path(table, "_delta_log", f"{2:020}.json")
    with leave_out(newest), pytest.raises(OSError, match=newest.name):
        write(spark.range(7, 8).selectExpr("id AS n", "'b' AS savepoint_id"), table)
    assert commits_of(table) == before
    assert sorted(DeltaTable(table).to_pyarrow_table()["n"].to_pylist()) == [0, 1, 2]
