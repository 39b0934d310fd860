"""Days of bronze in a small lake, some of its rows a day late, and what its tables must then be."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from include.fold.admission import EPOCH, MICROSECOND
from include.fold.definition import KeyedFold
from include.registry import stream_named
from include.settings import SavepointRules, Stream
from include.streams.device_signals import Signal
from tests.bronze import Happened, StampedRow, rows_for, stamp
from tests.fold import oracle

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
START_US = 1_750_032_000_000_000  # a midnight
KEYS = 4


def small(name: str, **changes: Any) -> Stream:
    """A stream that we ship, with few buckets, and so short a delay that a day late is late."""
    few = {"buckets": 5, "state_partitions": 2, "watermark_delay": timedelta(milliseconds=5)}
    # Few rows are enough here for a replay to pause at each day.
    rules = {"savepoints": SavepointRules(events_apart=1)}
    return replace(stream_named(name), **few | rules | changes)


def commits(seed: int, days: int, late: int) -> list[list[StampedRow]]:
    """A commit of signals for each eight hours. From the second day on, `late` rows of it are a day behind."""
    rng = random.Random(seed)
    made = []
    for number in range(days * 3):
        start_us = START_US + number * 8 * HOUR_US
        times = [start_us + rng.randrange(8 * HOUR_US) for _ in range(30)]
        if number >= 3:
            times += [time_us - DAY_US for time_us in rng.sample(times, late)]
        signals = [Signal(rng.randrange(KEYS), time_us, 1) for time_us in times]
        made.append([Happened(each, each.event_time_us) for each in signals])
    return stamp(made)


def rows_of(stamped: Iterable[Sequence[StampedRow]]) -> list[StampedRow]:
    return [row for commit in stamped for row in commit]


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
