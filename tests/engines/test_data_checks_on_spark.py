"""A stream's checks as Spark asks them: of fetched rows and of large batches, in one pass."""

import json
from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from include.lake.ops import read_ops
from include.settings import Check, DataCheckError
from include.streams import user_counts
from spark_jobs import run_stream
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from spark_jobs.tables.product import judge_rows, refuse_wrong
from tests import sql_checks
from tests.bronze import append_commit
from tests.engines.live_lakes import COUNTED, COUNTS, expected_rows, local_run, table_rows
from tests.refused import refused

pytestmark = pytest.mark.spark

CHECKS = (
    Check(name="positive", each_row="n > 0"),
    Check(name="known", each_row="name IS NOT NULL", severity="warning"),
    Check(name="small", each_row="n < 1000 OR name = 'big'"),
    Check(name="enough", together="count(*) >= 3"),
    Check(name="few", together="count(*) < 3 AND max(n) > 1"),
)


def test_a_verdict_is_that_of_duckdb(spark):
    rows = spark.createDataFrame(
        [("a", 1), (None, 0), ("b", None), ("big", 5000), ("c", 2000)], "name string, n bigint"
    )
    ours, theirs = judge_rows(rows, CHECKS), sql_checks.judge_rows(rows.toArrow(), CHECKS)
    assert [v[:3] for v in ours] == [v[:3] for v in theirs]
    assert [v.failing for v in ours] == [2, 1, 2, 0, None]
    assert [json.loads(example) for example in ours[0].examples] == [
        {"name": None, "n": 0},
        {"name": "b", "n": None},
    ]
    assert judge_rows(rows.where(F.lit(False)), CHECKS) == []


@pytest.mark.parametrize(
    "check",
    [
        Check(name="wrong", each_row="n >"),
        Check(name="wrong", each_row="m > 0"),
        Check(name="wrong", each_row="n + 1"),
        Check(name="wrong", each_row="count(*) > 1"),
        Check(name="wrong", together="n > 1"),
        Check(name="wrong", together="max(n)"),
    ],
)
def test_what_spark_cannot_ask_is_refused_before_anything_is_read(spark, check):
    rows = spark.createDataFrame([], "name string, n bigint")
    with refused("wrong_setting", subject="wrong") as raised:
        refuse_wrong(rows, [*CHECKS, check])
    assert "\n" not in str(raised.value)


def test_a_condition_that_fails_for_a_row_is_not_met_and_is_named(spark):
    rows = spark.createDataFrame([("a", 1), ("b", 0)], "name string, n bigint")
    fails = (
        Check(name="share", each_row="10 / n > 1"),
        Check(name="number", each_row="CAST(name AS int) > 0", severity="warning"),
        Check(name="mean", together="sum(n) / (count(*) - 2) > 0"),
    )
    verdicts = {verdict.check.name: verdict for verdict in judge_rows(rows, [*CHECKS, *fails])}
    whys = {"share": "DIVIDE_BY_ZERO", "number": "CAST_INVALID_INPUT", "mean": "DIVIDE_BY_ZERO"}
    for name, why in whys.items():
        failed = verdicts.pop(name)
        assert (failed.rows, failed.failing, failed.is_met) == (2, None, False)
        assert why in (failed.problem or "")
        assert "\n" not in (failed.problem or "")
    assert [*verdicts.values()] == judge_rows(rows, CHECKS)


@pytest.mark.parametrize(
    "is_small", [True, pytest.param(False, marks=pytest.mark.e2e)], ids=["fetched", "on Spark"]
)
def test_a_batch_that_does_not_meet_one_is_not_published(
    spark, counted_lake, monkeypatch, is_small
):
    lake, engine = counted_lake, SparkEngine(spark)
    monkeypatch.setattr(run_stream, "is_small", lambda _: is_small)
    check = Check(name="low", each_row="total_count <= 4")
    append_commit(lake, COUNTS.source, user_counts.FOLD, COUNTED[1])
    before = table_rows(lake, COUNTS, user_counts.FOLD)
    with pytest.raises(DataCheckError) as stopped:
        drain(engine, lake, replace(COUNTS, checks=(check,)))
    assert table_rows(lake, COUNTS, user_counts.FOLD) == before
    failed = read_ops(lake, "runs", {"outcome": "failed"})
    assert failed["error"].to_pylist() == [str(stopped.value)]

    warning = replace(check, severity="warning")
    drain(engine, lake, replace(COUNTS, checks=(warning,)))
    oracle = local_run(user_counts.FOLD, COUNTED[:2])
    assert table_rows(lake, COUNTS, user_counts.FOLD) == expected_rows(oracle, user_counts.FOLD)
    found = read_ops(lake, "findings").to_pylist()
    told = [(row["finding"], row["count"]) for row in found if row["finding"].startswith("data_")]
    assert sorted(told) == [("data_check_failed", 5), ("data_check_warning", 5)]
