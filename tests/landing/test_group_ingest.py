"""Landed files of a source with groups: who is late, and what people see."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from include.fold.admission import MICROSECOND, is_late, micros_of
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing.clock import write_clock_row
from include.landing.ingest import ingest
from include.landing.ingest_log import Ingestion
from include.landing.parse_files import Parse
from include.registry import stream_named
from include.settings import FOLDER, Source
from tests.clocked import HOUR, WITHOUT_CLOCK, clock_of
from tests.clocked import SIGNALS as CLOCKED
from tests.deaths import MachineClock
from tests.ingested import bronze_of, one_file_a_commit
from tests.landed_files import START, Landing, signal
from tests.parsers import both_parsers_at_length
from tests.refused import refused

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)
PER_FOLDER = replace(one_file_a_commit(WITHOUT_CLOCK), watermark_per=FOLDER, idle_after=2 * DAY)
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
        if row["arrival_watermark"] is not None
        and is_late(micros_of(row["event_time"]), micros_of(row["arrival_watermark"]), delay_us)
    }


@both_parsers_at_length
@pytest.mark.parametrize(
    ("source", "late"),
    [
        (replace(PER_FOLDER, watermark_per=None), {SLOW}),
        (PER_FOLDER, set()),
        (PER_DEVICE, set()),
    ],
)
def test_a_producer_that_is_a_day_ahead_makes_no_row_of_another_late(
    lake: Lake,
    landed: Landing,
    machine: MachineClock,
    parse: Parse,
    source: Source,
    late: set[int],
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


def test_whoever_waits_for_a_silent_group_is_told_where_a_clock_that_was_ahead_counts_no_silence(
    lake: Lake, landed: Landing, machine: MachineClock
):
    source = replace(PER_FOLDER, idle_after=6 * HOUR)
    for hour, ahead in enumerate([0, 400, 0, 0]):
        machine.time = START + ahead * DAY + hour * HOUR
        landed.add(f"fast/{hour}.jsonl", [signal(hour * 8 * 3600 - 1, FAST)])
        if hour < 2:
            landed.add(f"slow/{hour}.jsonl", [signal(hour, SLOW)])
        ingest(lake, source)
    found = read_ops(lake, "findings", {"finding": "group_behind"}).sort_by("found_at").to_pylist()
    until = (START + 400 * DAY + HOUR).strftime("%F")
    assert f"until {until}" in found[-1]["action"]


GROUPED = replace(one_file_a_commit(CLOCKED), watermark_per=FOLDER, idle_after=HOUR)


# Clock rows


def test_a_clock_row_that_is_held_back_is_not_written_twice_at_an_instant(
    lake: Lake, landed: Landing, machine: MachineClock
):
    landed.add("slow/0.jsonl", [signal(0)])
    machine.time = START + HOUR
    ingest(lake, GROUPED, interval_end=machine.time)
    later = machine.time + timedelta(minutes=5)
    for _ in range(3):
        write_clock_row(Ingestion.open(lake, GROUPED), later, later)
    assert len(bronze_of(lake)) == 1 + 1
    assert clock_of(lake, GROUPED).watermark_us == micros_of(START)


# What people see


def findings_of(lake: Lake) -> dict[str, dict[str, Any]]:
    return {row["finding"]: row for row in read_ops(lake, "findings").to_pylist()}


def groups_of(lake: Lake) -> dict[str, dict[str, Any]]:
    return {row["group"]: row for row in read_ops(lake, "watermark_groups").to_pylist()}


def test_who_holds_the_clock_and_who_is_ahead_is_told(
    lake: Lake, landed: Landing, machine: MachineClock
):
    source = replace(PER_DEVICE, idle_after=12 * HOUR, commit_bytes=2**20)
    days = {1: 2, 2: 2.25, 3: 4, 4: 0.5}
    landed.add("a.jsonl", [signal(days[device] * DAY_S, device) for device in days])
    machine.time = START + 5 * DAY
    ingest(lake, source)
    found = findings_of(lake)
    assert found.keys() == {"group_behind", "group_ahead"}
    assert (found["group_behind"]["figure"], found["group_behind"]["limit"]) == (151200, 43200)
    assert found["group_ahead"]["figure"] == 172800
    groups = groups_of(lake)
    assert [name for name, row in groups.items() if row["is_least"]] == ["4"]
    assert {name: row["ahead_seconds"] for name, row in groups.items()} == {
        str(device): (day - 0.5) * DAY_S for device, day in days.items()
    }
    assert groups["3"]["newest_event_time"] == START + 4 * DAY
    assert groups["3"]["last_seen_at"] == machine.time


def test_who_falls_idle_and_who_comes_behind_the_clock_is_told(
    lake: Lake, landed: Landing, machine: MachineClock
):
    source = replace(PER_DEVICE, idle_after=2 * HOUR)
    landed.add("0.jsonl", [signal(0, SLOW), signal(3600, FAST)])
    machine.time = START + HOUR
    ingest(lake, source)
    assert findings_of(lake) == {}
    for hour in (2, 3):
        landed.add(f"{hour}.jsonl", [signal(3600 * hour, FAST)])
        machine.time = START + hour * HOUR
        ingest(lake, source)
    assert findings_of(lake).keys() == {"group_idle"}
    assert groups_of(lake)[str(SLOW)]["is_idle"]
    assert groups_of(lake)[str(SLOW)]["ahead_seconds"] == -3 * 3600
    landed.add("woken.jsonl", [signal(60, SLOW)])
    ingest(lake, source)
    woken = findings_of(lake)["group_behind_watermark"]
    assert woken["count"] == 1
    assert woken["event_time_to"] == START + timedelta(minutes=1)
    assert not groups_of(lake)[str(SLOW)]["is_idle"]


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
