"""The watermark of a source by groups, against an oracle that finds each commit's from all before it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import MICROSECOND, is_late, micros_of
from include.ingest.ingest import ingest, write_heartbeat, write_keepalive
from include.ingest.ingest_log import Ingestion
from include.ingest.parse_files import Parse
from include.ingest.watermark import (
    SourceWatermark,
    advance_watermark,
    logged_groups,
    set_watermark_back,
)
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import FOLDER, Source
from tests.deaths import MachineClock
from tests.examples import examples
from tests.ingested import bronze_of, one_file_a_commit
from tests.landed_files import START, Landing, signal
from tests.parsers import both_parsers_at_length
from tests.refused import refused
from tests.simulator import oracle
from tests.simulator.auditor import Auditor
from tests.simulator.oracle import Commit, Landed, Marks
from tests.simulator.world import GROUPED, MINUTE_US, START_US, open_world
from tests.watermarks import HOUR, NO_HEARTBEAT, watermark_of
from tests.watermarks import SIGNALS as WITH_HEARTBEAT

IDLE = timedelta(minutes=30)
IDLE_US = IDLE // MICROSECOND
SOURCE = replace(GROUPED, heartbeat_delay=None, idle_after=IDLE)
EMPTY = SourceWatermark(groups=logged_groups({}, SOURCE))

# Few and at the edges, so that groups meet, fall idle exactly, and wake.
MINUTES = st.sampled_from([0, 1, 14, 15, 16, 29, 30, 31, 60, 1440])
NEARLY_US = st.sampled_from([0, 0, 0, 1, 999, 1000, -1, -1000])
KEYS = st.sampled_from("abcd")


class Step(NamedTuple):
    """A commit to come: how long after the one before, and its times before its own."""

    passed_us: int
    rows: tuple[tuple[str, int], ...] = ()  # key, ago
    clock_ago_us: int | None = None
    reset_ago_us: int | None = None


def spans() -> st.SearchStrategy[int]:
    return st.builds(lambda minutes, us: max(0, minutes * MINUTE_US + us), MINUTES, NEARLY_US)


AGO = spans() | spans().map(lambda us: -us)
LANDED = st.lists(st.tuples(KEYS, AGO), min_size=1, max_size=4).map(tuple)
NONE = st.none()
# Of a NamedTuple Hypothesis draws what has a default, too, where it is not given.
STEPS = st.lists(
    st.builds(Step, spans(), LANDED, NONE, NONE)
    | st.builds(Step, spans(), st.just(()), spans(), NONE)
    | st.builds(Step, spans(), st.just(()), NONE, spans()),
    max_size=14,
)


def commits_of(steps: Sequence[Step]) -> list[Commit]:
    """As the oracle has them; the first is of rows, and what says nothing new is left out."""
    now_us, commits = START_US, [Commit(START_US, (Landed("a", START_US, 1),))]
    for step in steps:
        now_us += step.passed_us
        last_us = oracle.grouped_marks(commits, IDLE_US)[-1].commit_us
        rows = tuple(Landed(key, now_us - ago_us, 1) for key, ago_us in step.rows)
        if rows:
            commits.append(Commit(now_us, rows))
        elif step.clock_ago_us is not None and now_us - step.clock_ago_us > last_us:
            commits.append(Commit(now_us, (), clock_us=now_us - step.clock_ago_us))
        elif step.reset_ago_us is not None and now_us - step.reset_ago_us < last_us:
            commits.append(Commit(now_us, (), reset_us=now_us - step.reset_ago_us))
    return commits


def next_watermark(before: SourceWatermark, commit: Commit) -> SourceWatermark:
    if commit.reset_us is not None:
        return set_watermark_back(before, commit.reset_us, commit.now_us)
    if commit.clock_us is not None:
        return advance_watermark(before, commit.clock_us, commit.now_us)
    newest = {r.key: max(s.time_us for s in commit.rows if s.key == r.key) for r in commit.rows}
    return advance_watermark(before, max(newest.values()), commit.now_us, newest)


@given(STEPS)
@examples(500)
def test_the_marks_of_each_commit_are_those_of_all_that_came_before(steps: list[Step]):
    commits = commits_of(steps)
    known, marks = EMPTY, []
    for commit in commits:
        before, known = known, next_watermark(known, commit)
        marks.append(Marks(before.watermark_us, known.watermark_us, known.ingested_at_us))
    assert marks == oracle.grouped_marks(commits, IDLE_US)


BETWEEN = st.sampled_from(["nothing", "nothing", "heartbeat", "joined"])


@given(STEPS, st.lists(BETWEEN, min_size=15, max_size=15))
@examples(60)
def test_bronze_goes_on_from_its_log(steps: list[Step], between: list[str]):
    with open_world(source=SOURCE) as world:
        for step, then in zip([Step(0, (("a", 0),)), *steps], between, strict=False):
            world.now_us += step.passed_us
            if step.rows:
                world.append([Landed(key, world.now_us - ago_us, 1) for key, ago_us in step.rows])
            elif step.clock_ago_us is not None:
                world.ingest_clock(world.now_us - step.clock_ago_us)
            if then == "heartbeat":
                write_keepalive(world.lake, world.source)
            if then == "joined":
                DeltaTable(world.lake.bronze(SOURCE.name)).optimize.compact()
        Auditor(world, "counts").check_clock()


# One by one


def after_rows(before: SourceWatermark, at_minute: float, **minutes: float) -> SourceWatermark:
    newest = {key: START_US + int(minute * MINUTE_US) for key, minute in minutes.items()}
    now_us = START_US + int(at_minute * MINUTE_US)
    return advance_watermark(before, max(newest.values()), now_us, newest)


def test_idle_groups_that_the_watermark_has_passed_are_forgotten():
    clock = SourceWatermark(groups=logged_groups({}, replace(SOURCE, watermark_groups=2)))
    for day in range(10):  # as folders of days come and go
        clock = after_rows(clock, day * 1440, **{f"day{day}": day * 1440})
        clock = after_rows(clock, day * 1440 + 15, **{f"day{day}": day * 1440})
    assert clock.groups is not None
    assert set(clock.groups.of) == {"day9"}


# From landed files


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


@pytest.mark.slow
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


def test_the_group_that_holds_the_watermark_back_is_a_finding(
    lake: Lake, landed: Landing, machine: MachineClock
):
    source = replace(PER_DEVICE, idle_after=12 * HOUR, commit_bytes=2**20)
    days = {1: 2, 2: 2.25, 3: 4, 4: 0.5}
    landed.add("a.jsonl", [signal(days[device] * DAY_S, device) for device in days])
    machine.time = START + 5 * DAY
    ingest(lake, source)
    (found,) = read_ops(lake, "findings").to_pylist()
    assert (found["finding"], found["figure"], found["limit"]) == ("group_behind", 151200, 43200)


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
