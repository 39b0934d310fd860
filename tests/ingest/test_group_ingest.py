"""Landed files of a source with groups: who is late, and what people see."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from include.fold.admission import MICROSECOND, is_late, micros_of
from include.ingest.ingest import ingest, write_heartbeat
from include.ingest.ingest_log import Ingestion
from include.ingest.parse_files import Parse
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import FOLDER, Source
from tests.deaths import MachineClock
from tests.ingested import bronze_of, one_file_a_commit
from tests.landed_files import START, Landing, signal
from tests.parsers import both_parsers_at_length
from tests.refused import refused
from tests.watermarks import HOUR, NO_HEARTBEAT, watermark_of
from tests.watermarks import SIGNALS as WITH_HEARTBEAT

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)
PER_FOLDER = replace(one_file_a_commit(NO_HEARTBEAT), watermark_per=FOLDER, idle_after=2 * DAY)
PER_DEVICE = replace(PER_FOLDER, watermark_per="device_id")
DAY_S = 24 * 3600
FAST, SLOW = 1, 2


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> MachineClock:
    return MachineClock(monkeypatch, START + DAY)


def two_producers(landed: Landing, hours: int = 3) -> Iterator[int]:
    """An hour of each at a time: of one as it happens, of the other a day later."""
    for hour in range(hours):
        seconds = [hour * 3600 + 60 * minute for minute in (5, 30, 55)]
        landed.add(f"fast/{hour}.jsonl", [signal(s + DAY_S, FAST) for s in seconds])
        landed.add(f"slow/{hour}.jsonl", [signal(s, SLOW) for s in seconds])
        yield hour


def late_devices(lake: Lake) -> set[int]:
    delay_us = stream_named("device_signals").watermark_delay // MICROSECOND
    return {
        row["device_id"]
        for row in bronze_of(lake)
        if row["watermark_before"] is not None
        and is_late(micros_of(row["event_time"]), micros_of(row["watermark_before"]), delay_us)
    }


@both_parsers_at_length
@pytest.mark.parametrize(
    ("source", "late"),
    [(replace(PER_FOLDER, watermark_per=None), {SLOW}), (PER_FOLDER, set()), (PER_DEVICE, set())],
)
def test_a_producer_that_is_a_day_ahead_makes_no_row_of_another_late(
    lake: Lake, landed: Landing, machine: MachineClock, parse: Parse, source: Source, late: set[int]
):
    landed.add("slow/first.jsonl", [signal(0, SLOW)])
    landed.add("fast/first.jsonl", [signal(DAY_S, FAST)])
    source = replace(source, commit_bytes=64 * 2**20)  # the first commit has both
    ingest(lake, source, parse=parse)
    for hour in two_producers(landed):
        machine.time = START + DAY + (hour + 1) * HOUR
        ingest(lake, one_file_a_commit(source), parse=parse)
    assert len(bronze_of(lake)) == 2 + 2 * 3 * 3
    assert late_devices(lake) == late


GROUPED = replace(one_file_a_commit(WITH_HEARTBEAT), watermark_per=FOLDER, idle_after=HOUR)


# Heartbeats


def test_a_heartbeat_that_is_held_back_is_not_written_twice_at_an_instant(
    lake: Lake, landed: Landing, machine: MachineClock
):
    landed.add("slow/0.jsonl", [signal(0)])
    machine.time = START + HOUR
    ingest(lake, GROUPED, interval_end=machine.time)
    later = machine.time + timedelta(minutes=5)
    for _ in range(3):
        write_heartbeat(Ingestion(lake, GROUPED), later, later)
    assert len(bronze_of(lake)) == 1 + 1
    assert watermark_of(lake, GROUPED).watermark_us == micros_of(START)


# What people see


def findings_of(lake: Lake) -> dict[str, dict[str, Any]]:
    return {row["finding"]: row for row in read_ops(lake, "findings").to_pylist()}


def test_the_group_that_holds_the_watermark_back_is_a_finding(
    lake: Lake, landed: Landing, machine: MachineClock
):
    source = replace(PER_DEVICE, idle_after=12 * HOUR, commit_bytes=2**20)
    days = {1: 2, 2: 2.25, 3: 4, 4: 0.5}
    landed.add("a.jsonl", [signal(days[device] * DAY_S, device) for device in days])
    machine.time = START + 5 * DAY
    ingest(lake, source)
    found = findings_of(lake)
    assert found.keys() == {"group_behind"}
    assert (found["group_behind"]["figure"], found["group_behind"]["limit"]) == (151200, 43200)


def test_another_setting_has_no_groups_yet_and_the_watermark_goes_on(
    lake: Lake, landed: Landing, machine: MachineClock
):
    landed.add("x/0.jsonl", [signal(0, SLOW), signal(3600, FAST)])
    machine.time = START + HOUR
    ingest(lake, PER_DEVICE)
    known = watermark_of(lake, PER_DEVICE)
    assert known.groups is not None
    assert known.groups.of.keys() == {str(SLOW), str(FAST)}
    retained = watermark_of(lake, replace(PER_DEVICE, idle_after=3 * DAY))
    assert retained.groups is not None
    assert retained.groups.of == known.groups.of
    other = watermark_of(lake, PER_FOLDER)
    assert other.groups is not None
    assert (other.groups.of, other.watermark_us) == ({}, known.watermark_us)
    landed.add("x/1.jsonl", [signal(0, SLOW)])
    ingest(lake, PER_FOLDER)
    assert watermark_of(lake, PER_FOLDER).watermark_us == known.watermark_us
    assert watermark_of(lake, replace(PER_FOLDER, watermark_per=None)).groups is None


def test_a_source_with_too_many_groups_takes_nothing_and_says_so(
    lake: Lake, landed: Landing, machine: MachineClock
):
    landed.add("a.jsonl", [signal(device, device) for device in range(101)])
    source = replace(PER_DEVICE, watermark_groups=100)
    with refused("too_many_groups", subject="signals"):
        ingest(lake, source)
    assert bronze_of(lake) == []
    ingest(lake, replace(source, watermark_groups=101))
    assert len(bronze_of(lake)) == 101
