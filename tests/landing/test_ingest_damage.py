"""Ingestion into tables that a power cut, a wrong copy or another writer has changed."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from include.care.cared_tables import spark_tables_named
from include.fold.instants import micros_of
from include.lake.ops import read_ops
from include.lake.paths import Lake, LakeError
from include.lake.table_seal import read_seal
from include.landing.clock import Clock, read_logged_clock, why_not_ingest
from include.landing.file_log_seal import check_file_log
from include.plans.reseed_options import ReseedOptions
from include.registry import all_sources
from include.settings import TableCare
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.ingest_source import RunCounts, ingest
from spark_jobs.maintain_table import maintain
from spark_jobs.reingest_quarantine import reingest
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from spark_jobs.tables import bronze, clock_row
from spark_jobs.tables.clock_row import write_clock_row, write_still_row
from tests.clocked import clock_of, in_order
from tests.ingested import SIGNALS, one_file_a_commit, quarantine_of, values_of
from tests.landed_files import START, Landing, signal
from tests.late_lakes import small

pytestmark = pytest.mark.spark


@pytest.fixture
def landed(lake: Lake) -> Landing:
    return Landing(lake)


def reason(lake: Lake) -> str | None:
    return why_not_ingest(lake, SIGNALS, None, datetime.now(UTC))


@pytest.mark.full
@pytest.mark.parametrize("table", ["bronze", pytest.param("quarantine", marks=pytest.mark.full)])
def test_an_older_copy_of_a_table_is_refused(
    spark: SparkSession, lake: Lake, landed: Landing, table: str
):
    path = Path(lake.root, table, "signals")
    for number in range(3):
        landed.add(f"{number}.jsonl", [signal(number), "{"])
        ingest(spark, lake, SIGNALS)
        if number == 0:
            copy = shutil.copytree(path, path.with_name("copy"))
    assert "nothing new" in str(reason(lake))
    whole = path.rename(path.with_name("whole"))
    copy.rename(path)
    assert reason(lake) is None  # also when nothing has landed
    told = rf"{table}/signals is at version 1, older than 3, .* Nothing is ingested"
    with pytest.raises(LakeError, match=told):
        ingest(spark, lake, SIGNALS)
    with pytest.raises(LakeError, match=told):
        reingest(spark, lake, SIGNALS, {}, datetime.now(UTC))
    shutil.rmtree(path)
    whole.rename(path)
    assert "nothing new" in str(reason(lake))
    landed.add("3.jsonl", [signal(3)])
    assert ingest(spark, lake, SIGNALS).rows_bronze == 1


@pytest.mark.parametrize("table", ["bronze", pytest.param("quarantine", marks=pytest.mark.full)])
def test_an_emptied_newest_commit_is_refused(
    spark: SparkSession, lake: Lake, landed: Landing, table: str
):
    for number in range(2):
        landed.add(f"{number}.jsonl", [signal(number), "{"])
        ingest(spark, lake, SIGNALS)
    path = Path(lake.root, table, "signals")
    (path / "_delta_log" / f"{2:020}.json").write_text("")
    assert reason(lake) is None
    with pytest.raises(LakeError, match=rf"commit 2 of .*{table}/signals is empty"):
        ingest(spark, lake, SIGNALS)
    (path / "_delta_log" / f"{2:020}.json").write_text('{"commitInfo":')
    assert reason(lake) is None
    with pytest.raises(LakeError, match=rf"the log of .*{table}/signals cannot be read"):
        ingest(spark, lake, SIGNALS)


def test_rows_that_somebody_else_appended_are_refused(
    spark: SparkSession, lake: Lake, landed: Landing
):
    landed.add("a.jsonl", [signal(0)])
    ingest(spark, lake, SIGNALS)
    rows = DeltaTable(lake.bronze("signals")).to_pyarrow_table()
    plain = rows.cast(rows.schema.remove_metadata())
    write_deltalake(lake.bronze("signals"), plain, mode="append")
    with pytest.raises(LakeError, match=r"commit 2 of .* is not ours and changes its data: WRITE"):
        ingest(spark, lake, SIGNALS)


@pytest.mark.full
def test_all_commits_of_ours_are_known_without_a_seal(
    spark: SparkSession, lake: Lake, landed: Landing
):
    """A job may die between any of its commits and the seal."""
    clocked = replace(SIGNALS, clock_grace=timedelta(0))
    landed.add("a.jsonl", [signal(0), "{"])
    ingest(spark, lake, SIGNALS)
    sealed = Path(lake.ops("tables"))
    copy = shutil.copytree(sealed, sealed.with_name("copy"))
    landed.add("b.jsonl", [signal(1), "{"])
    ingest(spark, lake, clocked)  # a batch, and a clock row
    (row, _) = quarantine_of(spark, lake).collect()
    reingest(spark, lake, SIGNALS, {row.quarantine_id: signal(2)}, datetime.now(UTC))
    write_still_row(spark, lake, SIGNALS)
    shutil.rmtree(sealed)
    copy.rename(sealed)
    assert DeltaTable(lake.bronze("signals")).version() == 5
    assert "nothing new" in str(reason(lake))
    assert ingest(spark, lake, SIGNALS) == RunCounts()
    versions = {row["table"]: row["version"] for row in read_ops(lake, "tables").to_pylist()}
    assert versions["bronze/signals"] == 5
    assert versions["quarantine/signals"] == DeltaTable(lake.quarantine("signals")).version() == 3


@pytest.mark.full
def test_a_source_can_be_ingested_anew(spark: SparkSession, lake: Lake, landed: Landing):
    landed.add("a.jsonl", [signal(0), "{"])
    ingest(spark, lake, SIGNALS)
    before = values_of(spark, lake)
    for folder in (
        lake.bronze("signals"),
        lake.quarantine("signals"),
        lake.ingest_checkpoint("signals"),
    ):
        Path(folder).rename(f"{folder}-away")
    assert reason(lake) is None
    assert ingest(spark, lake, SIGNALS) == RunCounts(1, 1, 2, 1, 1)
    assert values_of(spark, lake) == before
    assert "nothing new" in str(reason(lake))
    assert ingest(spark, lake, SIGNALS) == RunCounts()


def test_sources_do_not_disturb_each_other(spark: SparkSession, lake: Lake, landed: Landing):
    landed.add("a.jsonl", [signal(0)])
    ingest(spark, lake, SIGNALS)
    assert {row["table"] for row in read_ops(lake, "tables").to_pylist()} == {
        "bronze/signals",
        "quarantine/signals",
        "checkpoints/ingest/signals",
    }
    for source in all_sources():
        if source.name != "signals":
            assert check_file_log(lake, source.name) == (frozenset(), [])
    assert json.loads(str(read_seal(lake, "checkpoints/ingest/signals")["mark"])) == {"lost": []}  # type: ignore[index]


@pytest.mark.full
def test_streams_refuse_bronze_that_was_ingested_anew_until_they_are_reseeded(
    spark: SparkSession, lake: Lake, landed: Landing
):
    """The way out that the refusal names."""
    stream = small("device_signals")
    landed.add(
        "a.jsonl", [signal(second, device_id=second // 60 % 3) for second in range(0, 9000, 60)]
    )
    ingest(spark, lake, SIGNALS)
    drain(SparkEngine(spark), lake, stream)
    before = sorted(DeltaTable(lake.table(stream.name)).to_pyarrow_table().to_pylist(), key=str)
    for folder in (
        lake.bronze("signals"),
        lake.quarantine("signals"),
        lake.ingest_checkpoint("signals"),
    ):
        Path(folder).rename(f"{folder}-away")
    ingest(spark, lake, SIGNALS)
    with pytest.raises(Exception, match=r"(?i)table") as refusal:
        drain(SparkEngine(spark), lake, stream)
    assert not isinstance(refusal.value, AssertionError)
    reseed(SparkEngine(spark), lake, stream, ReseedOptions())
    landed.add("b.jsonl", [signal(20_000)])
    ingest(spark, lake, SIGNALS)
    drain(SparkEngine(spark), lake, stream)
    after = sorted(DeltaTable(lake.table(stream.name)).to_pyarrow_table().to_pylist(), key=str)
    assert before
    assert [row for row in after if row in before] == before
    assert len(after) == 150  # all of a.jsonl is settled by b.jsonl


@pytest.mark.e2e
def test_the_care_of_a_table_seals_it_and_hides_no_change(
    spark: SparkSession, lake: Lake, landed: Landing
):
    for number in range(3):
        landed.add(f"{number}.jsonl", [signal(number)])
    ingest(spark, lake, one_file_a_commit())
    tables = spark_tables_named(lake, ["bronze/signals"])
    care = TableCare(min_small_files=2)
    maintain(spark, lake, tables, care)
    version = DeltaTable(lake.bronze("signals")).version()
    assert version == 4  # an OPTIMIZE
    assert sealed_version(lake) == version
    landed.add("3.jsonl", [signal(3)])
    ingest(spark, lake, SIGNALS)
    rows = DeltaTable(lake.bronze("signals")).to_pyarrow_table().slice(0, 1)
    plain = rows.cast(pa.schema([field.remove_metadata() for field in rows.schema]))
    write_deltalake(lake.bronze("signals"), plain, mode="append")
    maintain(spark, lake, tables, care)
    assert DeltaTable(lake.bronze("signals")).version() > version + 2
    assert sealed_version(lake) == version + 1
    with pytest.raises(LakeError, match="is not ours"):
        ingest(spark, lake, SIGNALS)


def sealed_version(lake: Lake) -> int:
    row = read_seal(lake, "bronze/signals")
    assert row is not None
    return int(row["version"])


def test_a_batch_that_another_commit_overtakes_knows_it(
    spark: SparkSession, lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    """Two runs at once, where no lease keeps them apart: during the batch's own write."""
    landed.add("a.jsonl", [signal(0)])
    ingest(spark, lake, SIGNALS)
    landed.add("b.jsonl", [signal(1)])
    rows_of_bronze = bronze.bronze_rows

    def write_meanwhile(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            before = read_logged_clock(lake, SIGNALS)
            assert before is not None
            after = bronze.clock_after(before, micros_of(START + timedelta(hours=1)), 0)
            clock_row.append_next(
                DeltaTable(lake.bronze("signals")), before, after, {"clock": True}
            )
            yield batch

    def slow(*given: Any) -> DataFrame:
        monkeypatch.setattr(bronze, "bronze_rows", rows_of_bronze)
        rows = rows_of_bronze(*given)
        return rows.mapInArrow(write_meanwhile, rows.schema)

    monkeypatch.setattr(bronze, "bronze_rows", slow)
    ingest(spark, lake, SIGNALS)
    first, between, last = in_order(spark, lake)
    assert (between.is_clock, last.source_file) == (True, "b.jsonl")
    assert last.arrival_watermark == between.commit_watermark > first.commit_watermark


def test_a_batch_that_did_not_know_the_clock_row_before_it_stops_the_run_once(
    spark: SparkSession, lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    """Two runs at once, where no lease keeps them apart."""
    clocked = replace(SIGNALS, clock_grace=timedelta(0))
    landed.add("a.jsonl", [signal(0)])
    ingest(spark, lake, SIGNALS)
    landed.add("b.jsonl", [signal(1)])
    read = bronze.read_clock

    def read_and_wait(*given: Any) -> Clock:
        clock = read(*given)
        monkeypatch.setattr(bronze, "read_clock", read)
        monkeypatch.setattr(clock_row, "landing_lag", lambda *_: None)
        write_clock_row(spark, lake, clocked, None, datetime.now(UTC))
        return clock

    monkeypatch.setattr(bronze, "read_clock", read_and_wait)
    with pytest.raises(StreamingQueryException, match="two jobs have written to bronze/signals"):
        ingest(spark, lake, SIGNALS)
    assert ingest(spark, lake, SIGNALS).rows_bronze == 1
    assert [name for name, _ in values_of(spark, lake)] == ["a.jsonl", "b.jsonl"]
    later = clock_of(spark, lake)
    landed.add("c.jsonl", [signal(2)])
    ingest(spark, lake, SIGNALS)
    assert clock_of(spark, lake).watermark_us == later.watermark_us
    assert later.watermark_us > micros_of(START + timedelta(hours=1))
