"""`ingested_at` rises with every commit to bronze, though the machine's clock goes back."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from include.fold.admission import MICROSECOND, micros_of
from include.lake.paths import Lake
from include.landing.bronze_commits import clock_after
from include.landing.clock import INGESTED_AT_KEY, WATERMARK_KEY, Clock
from include.landing.clock_row import write_clock_row
from include.landing.ingest import RunCounts, ingest
from include.landing.ingest_position import files_waiting
from spark_jobs.reingest_quarantine import reingest
from tests.clocked import (
    GRACE,
    HOUR,
    MS,
    SIGNALS,
    WITHOUT_CLOCK,
    at,
    clock_of,
    in_order,
    version,
)
from tests.deaths import MachineClock
from tests.ingested import quarantine_of
from tests.landed_files import START, Landing, signal


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> MachineClock:
    return MachineClock(monkeypatch, START)


def signal_at(instant: datetime) -> str:
    return json.dumps({"device_id": 1, "value": 1, "timestamp": instant.isoformat()})


@pytest.mark.full
@pytest.mark.spark
def test_ingested_at_rises_by_every_kind_of_commit_though_the_clock_goes_back(
    spark: SparkSession, lake: Lake, landed: Landing, machine: MachineClock
):
    noon = START + 12 * HOUR
    machine.time = noon + 7 * MICROSECOND
    landed.add("a.jsonl", [signal_at(noon), "{"])
    ingest(lake, WITHOUT_CLOCK)
    machine.time = noon - 2 * HOUR
    # Judged by the batch's own time: for that, noon is more than an hour ahead.
    landed.add("b.jsonl", [signal_at(noon), signal_at(noon - 3 * HOUR)])
    assert ingest(lake, WITHOUT_CLOCK) == RunCounts(1, 1, 2, 1, 1)
    # An event just ahead of the clock: it raises M to the monotone time, not the clock's.
    machine.time = noon + MS
    landed.add("c.jsonl", [signal_at(noon + HOUR)])
    ingest(lake, WITHOUT_CLOCK)
    (refused,) = (row for row in quarantine_of(lake) if row["reason_code"] == "not_json")
    mended = {refused["quarantine_id"]: signal_at(noon - 4 * HOUR)}
    assert reingest(spark, lake, SIGNALS, mended, noon - 4 * HOUR).rows_bronze == 1
    write_clock_row(lake, SIGNALS, **at(noon - HOUR))
    assert version(lake) == 4  # it would not have raised M
    write_clock_row(lake, SIGNALS, **at(noon + 3 * MS + GRACE - MICROSECOND))
    assert version(lake) == 4
    write_clock_row(lake, SIGNALS, **at(noon + 3 * MS + GRACE))

    rows = in_order(lake)
    stamps = [noon, noon + MS, noon + 2 * MS, noon + 3 * MS, noon + 3 * MS + GRACE]
    assert [row.ingested_at for row in rows] == [micros_of(stamp) for stamp in stamps]
    reached = [noon, noon, noon + 2 * MS, noon + 2 * MS, noon + 3 * MS]
    assert [row.commit_watermark for row in rows] == [micros_of(instant) for instant in reached]
    assert [row.arrival_watermark for row in rows] == [None, *map(micros_of, reached[:-1])]
    assert [row.is_clock for row in rows] == [False] * 4 + [True]


def test_a_clock_row_keeps_the_order_of_ingestion_though_the_clock_goes_back(
    lake: Lake, landed: Landing, machine: MachineClock
):
    machine.time = START + 12 * HOUR
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, WITHOUT_CLOCK)
    write_clock_row(lake, SIGNALS, **at(START + HOUR))
    after = Clock(micros_of(START + HOUR - GRACE), micros_of(START + 12 * HOUR + MS))
    assert clock_of(lake) == after
    assert in_order(lake)[-1].ingested_at == after.ingested_at_us


def forget_log(lake: Lake, *keys: str) -> None:
    """Take `keys` out of what bronze's commits say of themselves; version 0.1 had fewer."""
    for path in (Path(lake.bronze("signals")) / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            metadata = json.loads(action.get("commitInfo", {}).get("userMetadata", "null"))
            if metadata:
                for key in keys:
                    metadata.pop(key)
                action["commitInfo"]["userMetadata"] = json.dumps(metadata)
        path.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_bronze_whose_log_is_silent_goes_on_from_its_rows(
    lake: Lake, landed: Landing, machine: MachineClock
):
    machine.time = START + 12 * HOUR
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, SIGNALS, interval_end=START)
    known = clock_of(lake)
    forget_log(lake, WATERMARK_KEY, INGESTED_AT_KEY)
    assert clock_of(lake) == known == Clock(micros_of(START), micros_of(START + 12 * HOUR))

    machine.time = START
    landed.add("b.jsonl", [signal(1)])
    ingest(lake, SIGNALS, interval_end=START)
    assert files_waiting(lake, "signals") == 0
    assert in_order(lake)[-1].ingested_at == micros_of(START + 12 * HOUR + MS)
    assert clock_of(lake).watermark_us == micros_of(START + timedelta(seconds=1))


def test_ingestion_times_are_whole_milliseconds_and_go_on():
    assert clock_after(Clock(8_000, 6_000), 7_999, 7_999) == Clock(8_000, 7_000)
    assert clock_after(Clock(None, None), -1, 7_999) == Clock(-1_000, 7_000)
