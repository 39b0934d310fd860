"""Batches that another commit of bronze overtakes, where no lease keeps two jobs apart."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from include.fold.admission import micros_of
from include.lake.paths import Lake
from include.landing import clock_row as clock_rows
from include.landing import parsed_batch
from include.landing.bronze_commits import append_next, clock_after, clock_row, read_clock
from include.landing.clock import Clock
from include.landing.clock_row import write_clock_row
from include.landing.ingest import ingest
from include.landing.parsed_batch import Parse
from spark_jobs.tables import landing
from spark_jobs.tables import landing as bronze
from spark_jobs.tables.landing import parsed_on
from tests.clocked import clock_of, in_order
from tests.ingested import SIGNALS, values_of
from tests.landed_files import START, Landing, signal
from tests.parsers import both_parsers
from tests.refused import refused


def append_clock_row(lake: Lake) -> None:
    """By another job, an hour ahead."""
    table = DeltaTable(lake.bronze("signals"))
    before = read_clock(lake, SIGNALS)
    after = clock_after(before, micros_of(START + timedelta(hours=1)), 0)
    append_next(table, clock_row(SIGNALS, before, after), after, {"clock": True})


def overtake_the_one_here(lake: Lake, patch: pytest.MonkeyPatch) -> None:
    """When it has read the clock."""
    read = parsed_batch.read_clock

    def read_and_wait(*given: Any) -> Clock:
        clock = read(*given)
        patch.setattr(parsed_batch, "read_clock", read)
        append_clock_row(lake)
        return clock

    patch.setattr(parsed_batch, "read_clock", read_and_wait)


def overtake_spark(lake: Lake, patch: pytest.MonkeyPatch) -> None:
    """During its own write."""
    rows_of_bronze = bronze.bronze_rows

    def write_meanwhile(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            append_clock_row(lake)
            yield batch

    def slow(*given: Any) -> DataFrame:
        patch.setattr(bronze, "bronze_rows", rows_of_bronze)
        rows = rows_of_bronze(*given)
        return rows.mapInArrow(write_meanwhile, rows.schema)

    patch.setattr(bronze, "bronze_rows", slow)


@both_parsers
def test_a_batch_that_another_commit_overtakes_knows_it(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch, parse: Parse
):
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, SIGNALS)
    landed.add("b.jsonl", [signal(1)])
    overtake_the_one_here(lake, monkeypatch)
    overtake_spark(lake, monkeypatch)
    ingest(lake, SIGNALS, parse=parse)
    first, between, last = in_order(lake)
    assert (between.is_clock, last.source_file) == (True, "b.jsonl")
    assert last.arrival_watermark == between.commit_watermark > first.commit_watermark


@pytest.mark.spark
def test_a_batch_of_spark_that_did_not_know_the_clock_row_before_it_stops_the_run_once(
    spark: SparkSession, lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    clocked = replace(SIGNALS, clock_grace=timedelta(0))
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, SIGNALS)
    landed.add("b.jsonl", [signal(1)])
    read = landing.read_clock

    def read_and_wait(*given: Any) -> Clock:
        clock = read(*given)
        monkeypatch.setattr(landing, "read_clock", read)
        monkeypatch.setattr(clock_rows, "landing_lag", lambda *_: None)
        write_clock_row(lake, clocked, None, datetime.now(UTC))
        return clock

    monkeypatch.setattr(landing, "read_clock", read_and_wait)
    with refused("two_writers", subject="signals"):
        ingest(lake, SIGNALS, parse=parsed_on(spark))
    assert ingest(lake, SIGNALS, parse=parsed_on(spark)).rows_bronze == 1
    assert [name for name, _ in values_of(lake)] == ["a.jsonl", "b.jsonl"]
    later = clock_of(lake)
    landed.add("c.jsonl", [signal(2)])
    ingest(lake, SIGNALS)
    assert clock_of(lake).watermark_us == later.watermark_us
    assert later.watermark_us > micros_of(START + timedelta(hours=1))
