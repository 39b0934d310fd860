"""What ingestion judged is what its tables' own logs say was written, or the run fails."""

import gzip
from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from include.lake.paths import Lake
from include.landing.position import files_waiting
from include.registry import source_named
from spark_jobs import ingest_source
from spark_jobs.ingest_source import RunCounts, ingest
from spark_jobs.reingest_quarantine import reingest
from spark_jobs.tables import bronze
from tests.landed_files import Landing, forget_commit, signal

pytestmark = pytest.mark.spark

SIGNALS = source_named("signals")


@pytest.fixture
def landed(lake: Lake) -> Landing:
    return Landing(lake)


def assert_lost(spark: SparkSession, lake: Lake, table: str, judged: int, written: int) -> None:
    batch = f"RowsLostError: batch 0 of signals has {judged} rows for .*/{table}/signals"
    record: dict[str, Any] = {}
    with pytest.raises(StreamingQueryException, match=f"{batch}, .* has {written}"):
        ingest(spark, lake, SIGNALS, record)
    assert RunCounts(**record) == RunCounts()
    assert files_waiting(lake, "signals") == 1


@pytest.mark.parametrize("table", ["bronze", pytest.param("quarantine", marks=pytest.mark.full)])
def test_rows_lost_on_the_way_to_a_table_stop_the_run(
    spark: SparkSession, lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch, table: str
):
    landed.add("a.jsonl", [signal(0), "{", signal(1), "["])
    whole = getattr(bronze, f"{table}_rows")

    def lose_one(*given: Any) -> DataFrame:
        return whole(*given).limit(1)

    with monkeypatch.context() as patch:
        patch.setattr(bronze, f"{table}_rows", lose_one)
        assert_lost(spark, lake, table, judged=2, written=1)
    assert_lost(spark, lake, table, judged=2, written=1)  # the write is skipped: it was done


def test_a_write_that_never_came_stops_the_run_and_the_next_one_makes_it_good(
    spark: SparkSession, lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    landed.add("a.jsonl", [signal(0), signal(1)])
    with monkeypatch.context() as patch:
        patch.setattr(ingest_source, "append_once", lambda *_: None)
        assert_lost(spark, lake, "bronze", judged=2, written=0)
    assert ingest(spark, lake, SIGNALS) == RunCounts(1, 1, 2, 2, 0)


@pytest.mark.parametrize("left", [[signal(0)], pytest.param([], marks=pytest.mark.full)])
def test_a_file_that_changed_between_a_batch_and_its_repetition_stops_the_run(
    spark: SparkSession, lake: Lake, landed: Landing, left: list[str]
):
    lines = [signal(0), signal(1)]
    landed.add("a.jsonl", lines)
    ingest(spark, lake, SIGNALS)
    forget_commit(lake, 0)
    landed.add("a.jsonl", left)
    assert_lost(spark, lake, "bronze", judged=len(left), written=2)
    landed.add("a.jsonl", lines)  # as the message advises
    assert ingest(spark, lake, SIGNALS) == RunCounts(1, 1, 2, 2, 0)


@pytest.mark.full
def test_a_repeated_batch_is_held_against_its_own_commit(
    spark: SparkSession, lake: Lake, landed: Landing
):
    """Not against what others have committed since."""
    landed.add("a.jsonl.gz", gzip.compress(signal(0).encode())[:-5])
    ingest(spark, lake, SIGNALS)
    landed.add("b.jsonl", [signal(0), signal(1), "{"])
    ingest(spark, lake, SIGNALS)
    forget_commit(lake, 1)
    landed.add("a.jsonl.gz", gzip.compress(signal(2).encode()))
    assert reingest(spark, lake, SIGNALS, {}, datetime.now(UTC)).rows_bronze == 1
    spark.sql(f"OPTIMIZE delta.`{lake.bronze('signals')}`")
    version = DeltaTable(lake.bronze("signals")).version()
    assert ingest(spark, lake, SIGNALS) == RunCounts(1, 1, 3, 2, 1)
    assert DeltaTable(lake.bronze("signals")).version() == version
