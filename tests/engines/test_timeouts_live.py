"""Timeouts on real Delta and RocksDB, and in replay: both come to what the local engine does."""

import json
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle

from include.fold.admission import micros_of
from include.fold.definition import KeyedFold
from include.lake.generations import complete_until, read_generations
from include.lake.ops import read_ops
from include.registry import stream_named
from include.settings import SavepointRules, Stream
from include.stream.record import recorded
from include.stream_definition import load_definition
from include.streams import threshold_alerts
from include.streams.service_health import LogLine
from include.streams.user_sessions import UserEvent
from tests.bronze import ClockAt, StampedRow, rows_for, stamp
from tests.declared import with_fold
from tests.engines.lake_runs import (
    MICROSECOND,
    MS_US,
    START_US,
    arriving,
    drained,
    stored,
    table_of,
)
from tests.engines.live_lakes import signal
from tests.engines.live_lakes import user_event as counted_event
from tests.fold import machine, oracle
from tests.fold.arrivals import came_to, run
from tests.fold.local import LocalFold
from tests.fold.machine import MARKS, Mark, a_machine, fold_of
from tests.fold.oracle import Result, until

pytestmark = pytest.mark.spark
# Workers cannot import tests, so what they need of these travels with the query.
for module in (sys.modules[__name__], machine, oracle):
    cloudpickle.register_pickle_by_value(module)

DELAY = timedelta(milliseconds=5)
GAP = timedelta(milliseconds=5)
BUYING = {"event_type": "buy", "span": timedelta(milliseconds=6), "limit": 1}
SILENCE = {"stale_after": timedelta(microseconds=5_001), "time": "event"}
# As long as between two commits: a timeout at the very instant of the next one.
MINUTE_OF_SILENCE = {"stale_after": timedelta(minutes=1), "time": "processing"}
USERS = "aaabbcdefg"
SHIPPED = stream_named("user_counts")


MACHINES = {
    "machine": fold_of(a_machine(random.Random(19), "EventTimeTimeout"), "append"),
    "updating_machine": fold_of(a_machine(random.Random(5), "ProcessingTimeTimeout"), "update"),
}


def entry(
    name: str, source: str, shape: tuple[int, int], delay: timedelta = DELAY, **settings: Any
) -> Stream:
    """`shape` is the number of buckets and of state partitions."""
    made = with_fold(SHIPPED, MACHINES[name]) if name in MACHINES else stream_named(name)
    buckets, partitions = shape
    return replace(
        made,
        name=name,
        source=source,
        watermark_delay=delay,
        buckets=buckets,
        state_partitions=partitions,
        settings=settings,
        savepoints=SavepointRules(cadence=None),  # a machine has no file that they could name
    )


class Case(NamedTuple):
    """A stream with small settings, and how to make an event of it."""

    stream: Stream
    make: Callable[[random.Random, int], Any]


def user_event(rng: random.Random, time_us: int) -> UserEvent:
    return UserEvent(rng.choice(USERS), time_us)


def purchase(rng: random.Random, time_us: int) -> threshold_alerts.UserEvent:
    return threshold_alerts.UserEvent(rng.choice(USERS), time_us, rng.choice(["buy", "look"]))


def line(rng: random.Random, time_us: int) -> LogLine:
    return LogLine(rng.choice(USERS))


def mark(rng: random.Random, time_us: int) -> Mark:
    return Mark(rng.choice(USERS), time_us, rng.choice(MARKS))


NO_DELAY = timedelta(0)
SESSIONS = Case(entry("user_sessions", "user_events", (5, 2), gap=GAP), user_event)
ALERTS = Case(entry("threshold_alerts", "user_events", (1, 1), **BUYING), purchase)
HEALTH = Case(entry("service_health", "service_logs", (7, 3), **SILENCE), line)
HEALTH_BY_INGESTION = Case(
    entry("service_health", "service_logs", (3, 1), NO_DELAY, **MINUTE_OF_SILENCE), line
)
MACHINE = Case(entry("machine", "marks", (4, 3)), mark)
UPDATING = Case(entry("updating_machine", "marks", (2, 2), NO_DELAY), mark)
COUNTS = Case(entry("user_counts", "user_events", (5, 2)), counted_event)
SIGNALS = Case(entry("device_signals", "signals", (5, 2)), signal)
CASES = {
    "counts": COUNTS,
    "signals": SIGNALS,
    "sessions": SESSIONS,
    "alerts": ALERTS,
    "health": HEALTH,
    "health by ingestion": HEALTH_BY_INGESTION,
    "machine": MACHINE,
    "updating machine by ingestion": UPDATING,
}
COMMITS, CLOCKS = 5, 1


class Arrived(NamedTuple):
    """A case's commits, and what the local engine makes of them."""

    stream: Stream
    fold: KeyedFold
    stamped: list[list[StampedRow]]
    engine: LocalFold
    local: Result
    until_us: int


def arrived(case: Case, seed: int) -> Arrived:
    """Commits of events, one of them a heartbeat: after it some keys' timeouts have come."""
    fold, delay_us = load_definition(case.stream).fold, case.stream.watermark_delay // MICROSECOND
    commits: list[Any] = arriving(seed, case.make, COMMITS, size=25)
    commits[2] = ClockAt(START_US + 33 * MS_US)
    stamped = stamp(commits)
    seen = [rows_for(fold, rows) for rows in stamped]
    engine = run(LocalFold(fold, delay_us), seen)
    until_us = until([row for rows in seen for row in rows], delay_us)
    return Arrived(case.stream, fold, stamped, engine, came_to(fold, engine), until_us)


def compare_with_local(spark, lake, given: Arrived) -> None:
    stream, fold, local = given.stream, given.fold, given.local
    assert table_of(lake, stream, fold) == local.table
    assert stored(spark, lake, stream, fold) == local.states
    runs = [row for row in read_ops(lake, "runs").to_pylist() if row["subject"] == stream.name]
    assert sum(row["rows_late"] for row in runs) == local.late
    assert sum(row["rows_in"] for row in runs) == sum(map(len, given.stamped)) - CLOCKS
    measured = read_ops(lake, "batches").to_pylist()
    assert all(json.loads(row["durations_ms"])["addBatch"] > 0 for row in measured)
    assert all(row["state_bytes"] > 0 for row in measured)
    assert not lake.is_delta_table(lake.dead_letters(stream.name))
    check_what_its_columns_mean(lake, stream, fold)
    assert recorded(read_generations(lake, stream.name)).totals["rows_pending"] == local.pending
    assert micros_of(complete_until(lake, stream.name)) == given.until_us


def check_what_its_columns_mean(lake, stream: Stream, fold: KeyedFold) -> None:
    table = DeltaTable(lake.table(stream.name))
    assert all(field.metadata["comment"] for field in table.schema().fields)
    metadata = table.metadata()
    assert metadata.description
    if fold.output_mode == "append":
        assert metadata.partition_columns == ["emitted_date"]
    else:
        assert metadata.configuration["delta.enableChangeDataFeed"] == "true"


# A restart in either kind of time and of table; the law's model has all of it without a JVM.
COST = {("sessions", 3): pytest.mark.e2e, ("counts", 1): ()}
RUNS = [
    pytest.param(name, runs, marks=COST.get((name, runs), pytest.mark.full))
    for runs in (COMMITS, 1, 3)
    for name in CASES
]


@pytest.mark.parametrize(("case", "runs"), RUNS)
def test_any_number_of_runs_gives_the_local_engines_table_states_and_timeouts(
    spark, lake, case, runs
):
    given = arrived(CASES[case], seed=1)
    drained(spark, lake, given.stream, given.fold, given.stamped, runs)
    compare_with_local(spark, lake, given)


@pytest.mark.parametrize("case", CASES)
def test_the_cases_have_what_makes_them_hard(case):
    given = arrived(CASES[case], seed=1)
    known = given.local.states.values()
    assert given.local.table
    if given.fold.timeout != "NoTimeout":
        assert any(each.timeout_at_us for each in known)
    if given.stream.name in MACHINES:
        assert any(each.state is None for each in known)  # only a timeout
    if not given.fold.in_processing_time:
        assert given.local.late > 0 < given.local.pending
