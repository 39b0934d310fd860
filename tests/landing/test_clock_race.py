"""Clock rows of writers that no lease keeps apart: each knows all that is in the log before it."""

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from include.fold.admission import instant_of, micros_of
from include.lake.delta_log import read_actions
from include.lake.paths import Lake
from include.landing import clock_row as clock_rows
from include.landing.bronze_commits import clock_after, clock_row
from include.landing.bronze_tables import create_tables
from include.landing.clock import Clock, check_clock_order, read_logged_clock
from include.landing.clock_row import write_clock_row, write_still_row
from tests.clocked import SIGNALS
from tests.landed_files import START
from tests.refused import refused

START_US = micros_of(START)
MINUTE_US = 60_000_000
STAMPS = ("arrival_watermark", "commit_watermark", "ingested_at")


@pytest.fixture
def bronze_lake(lake: Lake) -> Lake:
    """Bronze with one commit, and no lease that would work."""
    create_tables(lake, SIGNALS)
    add(lake, START_US)
    return lake


def add(lake: Lake, watermark_us: int) -> None:
    """A commit as ingestion makes it, when nobody is in its way."""
    before = read_logged_clock(lake, SIGNALS) or Clock(None, None)
    after = clock_after(before, watermark_us, START_US + MINUTE_US * 1000)
    append(lake, before, after)


def append(lake: Lake, before: Clock, after: Clock) -> None:
    """A row as the newest version, whatever that is: blind to what others do."""
    metadata = CommitProperties(custom_metadata={"userMetadata": json.dumps(after.metadata())})
    row = clock_row(SIGNALS, before, after)
    write_deltalake(lake.bronze("signals"), row, mode="append", commit_properties=metadata)


def stamps(lake: Lake) -> list[tuple[Any, Any, Any]]:
    """Of each commit, in the order of the log: arrival and commit watermark, ingested_at."""
    path = lake.bronze("signals")
    found = []
    for version in range(1, DeltaTable(path).version() + 1):
        (add,) = (a["add"] for a in read_actions(lake, path, version) if "add" in a)
        least = json.loads(add["stats"])["minValues"]
        texts = (least.get(name) for name in STAMPS)
        found.append(tuple(text and datetime.fromisoformat(text) for text in texts))
    return found


def assert_in_order(lake: Lake) -> None:
    for (_, reached, at), (arrived, now_at, later) in pairwise(stamps(lake)):
        assert arrived == reached  # it knew the commit right before it
        assert now_at >= arrived
        assert later >= at


def while_reading(monkeypatch: pytest.MonkeyPatch, others: list[Callable[[], None]]) -> None:
    """Let the others commit just after this writer has read its clock, one at a time."""
    read = clock_rows.read_clock

    def slow(*given: Any) -> Clock:
        clock = read(*given)
        if others:
            others.pop()()
        return clock

    monkeypatch.setattr(clock_rows, "read_clock", slow)


def ahead(lake: Lake, minutes: int) -> Callable[[], None]:
    return lambda: add(lake, START_US + minutes * MINUTE_US)


def test_a_still_row_is_not_behind_a_commit_that_came_between(
    bronze_lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    while_reading(monkeypatch, [ahead(bronze_lake, 9), ahead(bronze_lake, 5)])
    write_still_row(bronze_lake, SIGNALS)
    assert len(stamps(bronze_lake)) == 4
    assert_in_order(bronze_lake)
    clock = read_logged_clock(bronze_lake, SIGNALS)
    assert clock is not None
    assert clock.watermark_us == START_US + 9 * MINUTE_US


def test_a_clock_row_is_planned_anew_when_another_commit_came_between(
    bronze_lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    while_reading(monkeypatch, [ahead(bronze_lake, 9)])
    now = START + timedelta(minutes=20)
    write_clock_row(bronze_lake, SIGNALS, None, now)
    assert len(stamps(bronze_lake)) == 3
    assert_in_order(bronze_lake)


def test_no_clock_row_is_written_that_another_one_has_made_superfluous(
    bronze_lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    while_reading(monkeypatch, [ahead(bronze_lake, 30)])
    now = START + timedelta(minutes=20)
    write_clock_row(bronze_lake, SIGNALS, None, now)
    assert len(stamps(bronze_lake)) == 2


def test_writers_of_three_processes_keep_one_order(bronze_lake: Lake):
    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(5):
            if rng.random() < 0.5:
                write_still_row(bronze_lake, SIGNALS)
            else:
                now = instant_of(START_US + rng.randrange(60) * MINUTE_US)
                write_clock_row(bronze_lake, SIGNALS, None, now)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    assert_in_order(bronze_lake)


def test_a_commit_that_did_not_know_the_one_before_it_is_told(bronze_lake: Lake):
    """Spark cannot commit a version of its choice: what it could not prevent is not silent."""
    path = bronze_lake.bronze("signals")

    def commit_behind(others: list[Callable[[], None]]) -> None:
        before = read_logged_clock(bronze_lake, SIGNALS)
        assert before is not None
        for other in others:
            other()
        after = clock_after(before, START_US, START_US + MINUTE_US * 2000)
        append(bronze_lake, before, after)
        write_still_row(bronze_lake, SIGNALS)
        check_clock_order(bronze_lake, SIGNALS, before, after)

    def optimize() -> None:
        DeltaTable(path).optimize.compact()

    def still() -> None:
        write_still_row(bronze_lake, SIGNALS)

    commit_behind([])
    commit_behind([optimize, still])
    with refused("two_writers", subject="signals"):
        commit_behind([ahead(bronze_lake, 9), still])
    uncommitted = Clock(START_US, START_US)
    check_clock_order(bronze_lake, SIGNALS, uncommitted, uncommitted)
