"""`ingested_at` rises with every commit to bronze, though the machine's clock goes back."""

import json
from datetime import datetime

import pytest

from include.fold.admission import MICROSECOND, micros_of
from include.lake.paths import Lake
from include.landing.clock import write_clock_row
from include.landing.ingest import RunCounts, ingest
from include.landing.ingest_log import Ingestion
from include.landing.reingest import reingest
from tests.clocked import (
    GRACE,
    HOUR,
    MS,
    SIGNALS,
    WITHOUT_CLOCK,
    at,
    in_order,
    version,
)
from tests.deaths import MachineClock
from tests.ingested import quarantine_of
from tests.landed_files import START, Landing


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> MachineClock:
    return MachineClock(monkeypatch, START)


def signal_at(instant: datetime) -> str:
    return json.dumps({"device_id": 1, "value": 1, "timestamp": instant.isoformat()})


def test_ingested_at_rises_by_every_kind_of_commit_though_the_clock_goes_back(
    lake: Lake, landed: Landing, machine: MachineClock
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
    assert reingest(lake, SIGNALS, mended, noon - 4 * HOUR).rows_bronze == 1
    write_clock_row(Ingestion.open(lake, SIGNALS), **at(noon - HOUR))
    assert version(lake) == 4  # it would not have raised M
    write_clock_row(Ingestion.open(lake, SIGNALS), **at(noon + 3 * MS + GRACE - MICROSECOND))
    assert version(lake) == 4
    write_clock_row(Ingestion.open(lake, SIGNALS), **at(noon + 3 * MS + GRACE))

    rows = in_order(lake)
    stamps = [noon, noon + MS, noon + 2 * MS, noon + 3 * MS, noon + 3 * MS + GRACE]
    assert [row.ingested_at for row in rows] == [micros_of(stamp) for stamp in stamps]
    reached = [noon, noon, noon + 2 * MS, noon + 2 * MS, noon + 3 * MS]
    assert [row.commit_watermark for row in rows] == [micros_of(instant) for instant in reached]
    assert [row.arrival_watermark for row in rows] == [None, *map(micros_of, reached[:-1])]
    assert [row.is_clock for row in rows] == [False] * 4 + [True]
