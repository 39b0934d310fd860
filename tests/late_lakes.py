"""Days of bronze in a small lake, some of its rows a day late, and what its tables must then be."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from include.fold.admission import EPOCH, MICROSECOND
from include.fold.definition import KeyedFold
from include.maintain.check_checkpoint import check_checkpoint
from include.registry import stream_named
from include.settings import SavepointRules, Stream
from include.stream_definition import load_definition
from include.streams.device_signals import Signal
from include.streams.service_health import LogLine
from include.streams.threshold_alerts import UserEvent
from tests.bronze import Happened, StampedRow, rows_for, stamp
from tests.engines.lake_runs import drained
from tests.fold import oracle

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
START_US = 1_750_032_000_000_000  # a midnight
KEYS = 4
# An event of each source, as any of its streams reads it.
EVENTS = {
    "signals": lambda key, time_us: Signal(key, time_us, 1),
    "user_events": lambda key, time_us: UserEvent(
        f"u{key}", time_us, "purchase" if time_us % 2 else "look"
    ),
    "service_logs": lambda key, time_us: LogLine(f"s{key}"),
}


def small(name: str, **changes: Any) -> Stream:
    """A stream that we ship, with few buckets, and so short a delay that a day late is late."""
    few = {"buckets": 5, "state_partitions": 2, "watermark_delay": timedelta(milliseconds=5)}
    # Few rows are enough here for a replay to pause at each day.
    rules = {"savepoints": SavepointRules(events_apart=1)}
    return replace(stream_named(name), **few | rules | changes)


def commits(
    seed: int, days: int, source: str = "signals", size: int = 30, late: int = 0, tardy: int = 0
) -> list[list[StampedRow]]:
    """A commit for each eight hours. From the second day on, `late` rows of it are a day behind,
    and `tardy` ones less than an hour."""
    rng = random.Random(seed)
    made = []
    for number in range(days * 3):
        start_us = START_US + number * 8 * HOUR_US
        times = [start_us + rng.randrange(8 * HOUR_US) for _ in range(size)]
        if number >= 3:
            times += [time_us - DAY_US for time_us in rng.sample(times, late)]
            times += [start_us - rng.randrange(HOUR_US) for _ in range(tardy)]
        event = EVENTS[source]
        made.append([Happened(event(rng.randrange(KEYS), time_us), time_us) for time_us in times])
    return stamp(made)


def rows_of(stamped: Iterable[Sequence[StampedRow]]) -> list[StampedRow]:
    return [row for commit in stamped for row in commit]


def delay_us(stream: Stream) -> int:
    return stream.watermark_delay // MICROSECOND


def until_of(stream: Stream, stamped: Iterable[Sequence[StampedRow]]) -> int:
    """Return the instant of event time before which these commits complete everything."""
    return oracle.until(rows_of(stamped), delay_us(stream))


def live_result(
    stream: Stream, fold: KeyedFold, stamped: Iterable[Sequence[StampedRow]]
) -> oracle.Result:
    """What the rows that are not late come to."""
    seen = rows_for(fold, rows_of(stamped))
    return oracle.expected(fold, oracle.calls_of(fold), seen, delay_us(stream))


def truth(fold: KeyedFold, rows: Sequence[StampedRow], until_us: int) -> Any:
    """The table of all rows, late ones too, before an instant."""
    all_in_time = [
        row._replace(arrival_us=None, commit_us=until_us - 1) for row in rows_for(fold, rows)
    ]
    return oracle.expected(fold, oracle.calls_of(fold), all_in_time, delay_us=0).table


def between(table: Counter[Any], from_us: int, until_us: int) -> Counter[Any]:
    """The rows of an append table that were emitted from one instant and before another."""
    return Counter({row: n for row, n in table.items() if from_us <= row[1] < until_us})


def at(micros: int) -> datetime:
    return EPOCH + micros * MICROSECOND


HOUR = timedelta(hours=1)
BUYING = {"event_type": "purchase", "span": 4 * HOUR, "limit": 2}
STREAMS = {
    "device_signals": small("device_signals"),
    "user_counts": small("user_counts"),
    "user_sessions": small("user_sessions", settings={"gap": HOUR}),
    "threshold_alerts": small("threshold_alerts", settings=BUYING),
    "service_health": small("service_health", settings={"stale_after": HOUR, "time": "event"}),
}
# Whoever writes bronze must know all columns that its streams read.
WRITER = {"user_events": load_definition(STREAMS["threshold_alerts"]).fold}


def writer_of(stream: Stream) -> KeyedFold:
    return WRITER.get(stream.source) or load_definition(stream).fold


def in_runs(spark, lake, stream, stamped, runs) -> None:
    drained(spark, lake, stream, writer_of(stream), stamped, runs)


DAYS_US = [START_US + day * DAY_US for day in range(6)]


# What the check says of a table that is not right, or of a live state that is not.
OF_STATUS = {"late_rows_not_restated", "state_lacks_rows", "table_not_right", "table_changed"}


def days(number: int, seed: int, **more: int):
    """A commit for each eight hours, of few rows."""
    return commits(seed, days=number, size=8, **more)


def found(lake, stream) -> set[str]:
    return {each.finding for each in check_checkpoint(lake, stream).findings} & OF_STATUS
