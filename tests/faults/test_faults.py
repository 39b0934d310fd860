"""Some rows of the matrix, by a seed: what comes of them is equal, or loud and mended.

All of them: `make faults`. Others: FAULTS_SEED=7 in the environment.
"""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import close_state_stores
from tests.faults import matrix, pairs
from tests.faults.__main__ import on_spark, try_rows, without_jvm
from tests.faults.command_line import CommandLine
from tests.faults.trial import WRONG, Result

pytestmark = pytest.mark.e2e

SEED = int(os.environ.get("FAULTS_SEED", "1"))


def wrong(results: list[Result]) -> list[Result]:
    return [result for result in results if result.ended == WRONG]


def test_chosen_rows_are_equal_or_loud_and_mended(tmp_path: Path):
    rows = matrix.chosen(matrix.without_jvm(), SEED, 36)
    assert wrong(try_rows(rows, without_jvm(), tmp_path / "results")) == []


@pytest.mark.full
@pytest.mark.spark
def test_chosen_rows_are_so_on_spark(spark: SparkSession, tmp_path: Path):
    rows = matrix.chosen(matrix.on_spark(), SEED, 8)
    commands = CommandLine(
        lambda: SparkEngine(spark), lambda: spark, lambda: close_state_stores(spark)
    )
    assert wrong(try_rows(rows, commands, tmp_path / "results")) == []


def test_all_rows_have_names_of_their_own():
    names = [row.name for row in matrix.rows()]
    assert len(set(names)) == len(names) > 900


@pytest.mark.e2e
@pytest.mark.full
@pytest.mark.spark
def test_a_pair_leaves_every_row_right(tmp_path):
    results = try_rows([pairs.pair_of(1)], on_spark(), tmp_path / "results", pairs.result_of)
    assert [result for result in results if result.ended == WRONG] == []
