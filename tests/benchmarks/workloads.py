"""The workloads per user: a function of ours, Spark's own, and the expected result.

Counts; sessions that a gap ends (NEXMark's query 11); figures of a day (17); the last event (18);
and alerts. A result is one number, which DuckDB computes from the same files.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import duckdb
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from include.fold.definition import KeyedFold, map_groups_with_state
from include.fold.group_state import GroupState
from include.streams import threshold_alerts, user_counts, user_sessions

DAY_US = 86_400_000_000
GAP = timedelta(minutes=10)
SPAN, LIMIT = timedelta(minutes=10), 2


class Workload(NamedTuple):
    """One of them. `states` and `expected` are SQL of one number: over the states that are left
    (`state`), and over all events folded (`events`)."""

    fold: KeyedFold
    states: str
    expected: str
    counts_outputs: bool = False  # the result is that number, and the rows that came out
    native: Callable[[DataFrame], DataFrame] | None = None  # Spark without user code
    of_native: str = ""  # `states`, over what Spark keeps (`value`)


class Sale(NamedTuple):
    user_id: str
    event_time_us: int
    price: int


class Day(NamedTuple):
    day: int  # since 1970
    events: int
    least: int
    most: int
    total: int


class DayRow(NamedTuple):
    user_id: str
    day: int
    events: int
    least: int
    most: int
    total: int


def of_the_day(user_id: str, events: Iterator[Sale], state: GroupState[Day]) -> DayRow:
    """The user's figures of the newest day."""
    known = state.getOption
    for event in events:
        day, price = event.event_time_us // DAY_US, event.price
        if known is None or known.day != day:
            known = Day(day, 0, price, price, 0)
        least, most = min(known.least, price), max(known.most, price)
        known = Day(day, known.events + 1, least, most, known.total + price)
    assert known is not None
    state.update(known)
    return day_row(user_id, known)


def day_row(user_id: str, day: Day) -> DayRow:
    return DayRow(user_id, *day)


class Last(NamedTuple):
    at_us: int
    price: int


class LastRow(NamedTuple):
    user_id: str
    at_us: int
    price: int


def last_of(user_id: str, events: Iterator[Sale], state: GroupState[Last]) -> LastRow:
    """The user's last sale; events come in their order."""
    for event in events:
        state.update(Last(event.event_time_us, event.price))
    return last_row(user_id, state.get)


def last_row(user_id: str, last: Last) -> LastRow:
    return LastRow(user_id, *last)


DAILY = map_groups_with_state(
    of_the_day,
    key="user_id",
    event=Sale,
    state=Day,
    output=DayRow,
    output_mode="update",
    project=day_row,
)
LAST = map_groups_with_state(
    last_of,
    key="user_id",
    event=Sale,
    state=Last,
    output=LastRow,
    output_mode="update",
    project=last_row,
)


def native_days(rows: DataFrame) -> DataFrame:
    figures = (F.count("*"), F.min("price"), F.max("price"), F.sum("price"))
    return rows.groupBy("user_id", F.to_date("event_time")).agg(*figures)


SESSIONS_SQL = f"""SELECT count(*) FROM (
    SELECT event_time - lag(event_time) OVER (PARTITION BY user_id ORDER BY event_time) AS gap
    FROM events) WHERE gap IS NULL OR gap >= INTERVAL {GAP.seconds} SECONDS"""
# Right when as many as the limit lie within the span before an event: the next is an alert.
ALERTS_SQL = f"""SELECT count(*) FROM (
    SELECT count(*) OVER (PARTITION BY user_id ORDER BY epoch_us(event_time)
        RANGE BETWEEN {SPAN.seconds * 1_000_000 - 1} PRECEDING AND CURRENT ROW) AS recent
    FROM events WHERE event_type = 'purchase') WHERE recent = {LIMIT + 1}"""
DAYS_SQL = """SELECT sum(events * 31 + least * 7 + most * 3 + total) FROM (
    SELECT count(*) AS events, min(price) AS least, max(price) AS most, sum(price) AS total
    FROM events GROUP BY user_id)"""
LAST_SQL = """SELECT sum(price) FROM (
    SELECT arg_max(price, event_time) AS price FROM events GROUP BY user_id)"""

WORKLOADS = {
    "counts": Workload(
        fold=user_counts.FOLD,
        states="sum(state.total_count)",
        expected="SELECT count(*) FROM events",
        native=lambda rows: rows.groupBy("user_id").count(),
        of_native="sum(value.count)",
    ),
    "sessions": Workload(
        fold=user_sessions.define(gap=GAP),
        states="count(*)",
        expected=SESSIONS_SQL,
        counts_outputs=True,
    ),
    "days": Workload(
        fold=DAILY,
        states="sum(state.events * 31 + state.least * 7 + state.most * 3 + state.total)",
        expected=DAYS_SQL,
        native=native_days,
        of_native="sum(value.count * 31 + value.min * 7 + value.max * 3 + value.sum)",
    ),
    "last": Workload(fold=LAST, states="sum(state.price)", expected=LAST_SQL),
    "alerts": Workload(
        fold=threshold_alerts.define(event_type="purchase", span=SPAN, limit=LIMIT),
        states="sum(0)",
        expected=ALERTS_SQL,
        counts_outputs=True,
    ),
}


def expected_result(workload: str, files: Path, folded: int) -> int:
    """The number by DuckDB over the first `folded` events in time."""
    first = f"ORDER BY event_time LIMIT {folded}"
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE TABLE events AS SELECT * FROM read_parquet('{files}/*.parquet') {first}"
        )
        ((number,),) = connection.sql(WORKLOADS[workload].expected).fetchall()
    return int(number or 0)
