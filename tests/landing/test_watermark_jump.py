"""A watermark that moves further than time has passed is told of, with the file that moved it."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from include.fold.instants import MICROSECOND
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing.clock import Clock
from spark_jobs.ingest_source import ingest
from spark_jobs.tables.landing import ACCEPTED
from spark_jobs.tables.watermark_jump import SLACK, Jump, find_jump, jump_findings
from tests.clocked import GRACE, SIGNALS, clock_of
from tests.ingested import SIGNALS as WITHOUT_CLOCK
from tests.landed_files import START, Landing, signal

pytestmark = pytest.mark.spark

HOUR_US = timedelta(hours=1) // MICROSECOND
MOST_US = (SIGNALS.max_future + SLACK) // MICROSECOND


def jump(spark: SparkSession, newest: dict[str, int], passed_us: int = 0) -> Jump | None:
    """Of a commit with these files, each with its newest time after the watermark before."""
    rows = [(ACCEPTED, name, at_us) for name, at_us in newest.items()]
    parsed = spark.createDataFrame(rows, "kind STRING, source_file STRING, event_time_us BIGINT")
    after = Clock(max(newest.values()), passed_us)
    return find_jump(parsed, SIGNALS, Clock(0, 0), after)


def test_a_jump_is_what_goes_beyond_time_and_the_other_files(spark: SparkSession):
    assert jump(spark, {"a": MOST_US}) is None
    assert jump(spark, {"a": MOST_US + 1}) == (MOST_US + 1, 0, MOST_US + 1, "a")
    assert jump(spark, {"a": MOST_US + 1}, passed_us=1) is None
    assert jump(spark, {"a": 9 * HOUR_US, "b": 8 * HOUR_US}) is None
    assert jump(spark, {"a": 9 * HOUR_US, "b": HOUR_US}) == (8 * HOUR_US, 0, 9 * HOUR_US, "a")
    assert jump(spark, {"b": -9 * HOUR_US, "a": 9 * HOUR_US}) == (9 * HOUR_US, 0, 9 * HOUR_US, "a")


def test_the_furthest_jump_of_a_run_is_its_one_finding():
    jumps = [Jump(HOUR_US, 1, 5, "a"), Jump(3 * HOUR_US, 1_000_000, 0, "b")]
    assert jump_findings(SIGNALS, []) == []
    (found,) = jump_findings(SIGNALS, jumps)
    assert (found.finding, found.severity, found.count) == ("watermark_jumped", "warning", 2)
    assert "b moved the watermark of bronze/signals 3:00:00 beyond all other rows" in found.detail
    assert "to 1970-01-01T00:00:00.000+00:00, 0:00:01 after the commit before" in found.detail


def test_a_run_tells_of_the_file_that_moved_the_watermark(spark: SparkSession, lake: Lake):
    landed = Landing(lake)
    landed.add("a.jsonl", [signal(0)])
    ingest(spark, lake, WITHOUT_CLOCK)  # the first rows move it from nowhere
    landed.add("b.jsonl", [signal(60)])
    landed.add("wrong.jsonl", [signal(61), signal(40 * 24 * 3600)])
    ingest(spark, lake, WITHOUT_CLOCK)
    (found,) = read_ops(lake, "findings").to_pylist()
    assert (found["finding"], found["subject"]) == ("watermark_jumped", "signals")
    assert "wrong.jsonl moved the watermark of bronze/signals 39 days, 23:59:00" in found["detail"]


def test_a_wrong_clock_moves_the_watermark_by_one_step(spark: SparkSession, lake: Lake):
    source = replace(SIGNALS, max_clock_step=timedelta(days=2))
    Landing(lake).add("a.jsonl", [signal(0)])
    ingest(spark, lake, source, interval_end=START)
    far: datetime = START + timedelta(days=30)  # it is long past that now
    for run in (1, 2):
        ingest(spark, lake, source, interval_end=far)
        reached = clock_of(spark, lake).watermark_us
        assert reached == (START + run * source.max_clock_step).timestamp() * 1_000_000
    found = read_ops(lake, "findings").to_pylist()
    assert [row["finding"] for row in found] == ["clock_row_bounded"] * 2
    assert "at most 2 days, 0:00:00 (max_clock_step). The next run goes on" in found[0]["detail"]
    assert source.max_clock_step > GRACE
