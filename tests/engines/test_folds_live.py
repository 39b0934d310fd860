"""Every kind of fold on real Delta and RocksDB, and in a replay from a savepoint: both come to what the local
engine does. Timeouts, named timers, duplicates, and records of every type."""

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pyspark import cloudpickle

from include.fold.admission import instant_of, micros_of
from include.fold.definition import Deduplicate, KeyedFold, state_rows_ddl
from include.fold.records import Instant
from include.lake.generations import complete_until, read_generations
from include.lake.ops import read_ops
from include.registry import stream_named
from include.settings import SavepointRules, Stream
from include.stream.record import recorded
from include.stream_definition import load_definition
from include.streams import threshold_alerts
from include.streams.service_health import LogLine
from include.streams.user_sessions import UserEvent
from spark_jobs import run_stream
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.engines.state_rows import read_states, replay_fold, states_from_rows
from spark_jobs.write_savepoint import write_savepoint
from tests.bronze import ClockAt, StampedRow, rows_for, stamp
from tests.declared import with_fold
from tests.engines.fold_law import extra
from tests.engines.lake_runs import (
    MICROSECOND,
    MS_US,
    START_US,
    admitted_live,
    arriving,
    drained,
    known_in,
    outputs_of,
    stored,
    table_of,
    with_conf,
)
from tests.engines.live_lakes import signal
from tests.engines.live_lakes import user_event as counted_event
from tests.fold import failing_machine, machine, oracle, rich_orders, timer_machine
from tests.fold.arrivals import came_to, run
from tests.fold.local import LocalFold
from tests.fold.machine import MARKS, Machine, Mark, a_machine, fold_of
from tests.fold.oracle import Result, until
from tests.fold.rich_orders import FOLDS, Item, Order, Status
from tests.fold.timer_machine import a_timer_machine, fold_with_timers
from tests.written_savepoint import MANIFEST

pytestmark = pytest.mark.spark
# Workers cannot import tests, so what they need of these travels with the query.
for module in (
    sys.modules[__name__],
    *(failing_machine, machine, oracle, rich_orders, timer_machine),
):
    cloudpickle.register_pickle_by_value(module)

DELAY = timedelta(milliseconds=5)
GAP = timedelta(milliseconds=5)
BUYING = {"event_type": "buy", "span": timedelta(milliseconds=6), "limit": 1}
SILENCE = {"stale_after": timedelta(microseconds=5_001), "time": "event"}
# As long as between two commits: a timeout at the very instant of the next one.
MINUTE_OF_SILENCE = {"stale_after": timedelta(minutes=1), "time": "processing"}
USERS = "aaabbcdefg"
SHIPPED = stream_named("user_counts")


MADE = {
    "machine": fold_of(a_machine(random.Random(19), "EventTimeTimeout"), "append"),
    "updating_machine": fold_of(a_machine(random.Random(5), "ProcessingTimeTimeout"), "update"),
    "timers": fold_with_timers(
        a_timer_machine(random.Random(7), "EventTimeTimeout", False), "append"
    ),
    "orders": FOLDS["append by a function"],
    "totals": FOLDS["update by two columns"],
    "totals_by_buyer": FOLDS["update by a function"],
}


def entry(
    name: str, source: str, shape: tuple[int, int], delay: timedelta = DELAY, **settings: Any
) -> Stream:
    """`shape` is the number of buckets and of state partitions."""
    made = with_fold(SHIPPED, MADE[name]) if name in MADE else stream_named(name)
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


def order(rng: random.Random, time_us: int) -> Order:
    item = Item(rng.choice(["x", "y", None]), rng.choice([Decimal("1.10"), None]), ("p", None))
    return Order(
        country=rng.choice(["DE", "de", "FR", "ÆØ"]),
        customer=rng.choice([None, 1, 2, -3]),
        amount=Decimal(rng.randrange(-999, 999)).scaleb(-2),
        paid=rng.choice([True, False]),
        status=rng.choice(list(Status)),
        items=rng.choice([None, (), (item, None), (item,)]),
        notes=rng.choice([None, {}, {"b": -0.0, "a": None}]),
        raw=rng.randbytes(rng.randrange(3)),
        day=date(1969, 12, 31) + timedelta(days=rng.randrange(3)),
        created=instant_of(time_us - rng.randrange(3)),
        shipped=rng.choice([None, Instant(time_us)]),
        event_time_us=time_us,
    )


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
KNOWN = Deduplicate(by="event_type", within=timedelta(milliseconds=4))
CASES = {
    "counts": COUNTS,
    "signals": SIGNALS,
    "sessions": SESSIONS,
    "alerts": ALERTS,
    "health": HEALTH,
    "health by ingestion": HEALTH_BY_INGESTION,
    "machine": MACHINE,
    "updating machine by ingestion": UPDATING,
    "duplicates": ALERTS._replace(stream=replace(ALERTS.stream, deduplicate=KNOWN, buckets=3)),
    "timers": Case(entry("timers", "marks", (4, 3)), mark),
    "orders": Case(entry("orders", "orders", (5, 2)), order),
    "totals": Case(entry("totals", "orders", (5, 2)), order),
    "totals by buyer": Case(entry("totals_by_buyer", "orders", (5, 2)), order),
}
WRITTEN_BY_SPARK = ("orders", "totals")
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
    assert sum(row["rows_duplicate"] for row in runs) == given.engine.duplicates
    assert sum(row["rows_in"] for row in runs) == sum(map(len, given.stamped)) - CLOCKS
    measured = read_ops(lake, "batches").to_pylist()
    assert all(json.loads(row["durations_ms"])["addBatch"] > 0 for row in measured)
    assert all(row["state_bytes"] > 0 for row in measured)
    assert not lake.is_delta_table(lake.dead_letters(stream.name))
    assert recorded(read_generations(lake, stream.name)).totals["rows_pending"] == local.pending
    assert micros_of(complete_until(lake, stream.name)) == given.until_us


# A restart in either kind of time and of table; the law's model has all of it without a JVM.
COST = {
    **dict.fromkeys([("sessions", 3), ("totals", 1)], pytest.mark.e2e),
    **dict.fromkeys([("counts", 1), ("totals by buyer", 1)], ()),
}
RUNS = [
    pytest.param(name, runs, marks=COST.get((name, runs), pytest.mark.full))
    for runs in (COMMITS, 1, 3)
    for name in CASES
]


@pytest.mark.parametrize(("case", "runs"), RUNS)
def test_any_number_of_runs_gives_the_local_engines_table_states_and_timeouts(
    spark, lake, monkeypatch, case, runs
):
    given = arrived(CASES[case], seed=1)
    if case in WRITTEN_BY_SPARK:
        monkeypatch.setattr(run_stream, "is_small", lambda _: False)
    drained(spark, lake, given.stream, given.fold, given.stamped, runs)
    compare_with_local(spark, lake, given)


@pytest.mark.parametrize("case", CASES)
def test_the_cases_have_what_makes_them_hard(case):
    given = arrived(CASES[case], seed=1)
    known = given.local.states.values()
    assert given.local.table
    if given.fold.timeout != "NoTimeout":
        assert any(each.timeout_at_us for each in known)
    if type(given.fold.function) is Machine:
        assert any(each.state is None for each in known)  # only a timeout
    if not given.fold.in_processing_time:
        assert given.local.late > 0 < given.local.pending


@pytest.mark.e2e
@pytest.mark.parametrize(
    "case", ["duplicates", "timers", pytest.param("orders", marks=pytest.mark.full)]
)
def test_a_replay_goes_on_from_a_savepoint(spark, lake, case):
    given, engine = arrived(CASES[case], seed=6), SparkEngine(spark)
    stream, fold, middle_us = given.stream, given.fold, given.until_us - 12_000
    found = extra(fold, given.engine.states())
    assert any(found) == (case != "orders")
    drained(spark, lake, stream, fold, given.stamped, runs=2)
    compare_with_local(spark, lake, given)
    states = read_states(spark, lake.checkpoint(stream.name, 1), fold)
    assert extra(fold, by_key(states, fold)) == found

    with with_conf(spark, "spark.sql.shuffle.partitions", "2"):
        first = replay_fold(admitted_live(spark, lake, stream, fold), fold, 3, middle_us)
        made = MANIFEST | {"state_schema": state_rows_ddl(fold)}
        savepoint = write_savepoint(engine, lake, first.states, fold, middle_us, **made)
        assert savepoint.keys > 0
        base = engine.savepoint_states(lake, savepoint)
        rest = admitted_live(spark, lake, stream, fold, middle_us)
        second = replay_fold(rest, fold, 4, given.until_us, base=base)
        emitted = outputs_of(first.outputs, fold) + outputs_of(second.outputs, fold)
        assert emitted == Counter(table_of(lake, stream, fold))
        assert known_in(second.states, fold) == given.local.states
        assert extra(fold, by_key(second.states, fold)) == found


def by_key(states, fold) -> dict[Any, Any]:
    return {known.key: known for known in states_from_rows(fold, states.toArrow())}
