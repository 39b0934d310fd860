"""Savepoints and recomputes against the local engine, on bronze with late rows."""

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from deltalake import DeltaTable

from include.ops import read_ops, update_ops
from include.savepoints.manifest import savepoints_of
from include.streams import stream_named
from spark_jobs.engines.local import BronzeRow, LocalFold
from spark_jobs.fold.admission import EPOCH, MICROSECOND
from spark_jobs.fold.settle import Emitted
from spark_jobs.recompute_interval import recompute
from spark_jobs.streams import device_signals
from spark_jobs.streams.device_signals import Signal
from tests.bronze import stamp
from tests.engines.lake_runs import drained, table_of

pytestmark = pytest.mark.spark

FOLD = device_signals.FOLD
STREAM = replace(
    stream_named("device_signals"),
    buckets=5,
    state_partitions=2,
    watermark_delay=timedelta(milliseconds=5),
)
HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
START_US = 1_750_032_000_000_000  # a midnight


def commits(seed: int, days: int, late: bool):
    """A commit for each eight hours; with `late`, some rows a day behind."""
    rng = random.Random(seed)
    made = []
    for number in range(days * 3):
        start_us = START_US + number * 8 * HOUR_US
        times = [start_us + rng.randrange(8 * HOUR_US) for _ in range(30)]
        if late and number >= 3:
            times += [time_us - DAY_US for time_us in rng.sample(times, 4)]
        made.append([Signal(rng.randrange(4), time_us, 1) for time_us in times])
    return stamp(made)


def truth(rows, until_us: int) -> Counter:
    """What a fold of all rows, late ones too, emits before an instant."""
    local = LocalFold(FOLD, 0)
    events = [BronzeRow(row.event, row.time_us, None, until_us) for row in rows]
    local.run_batch([row for row in events if row.time_us < until_us])
    emitted: Emitted = local.emitted
    return Counter(zip(map(tuple, emitted.rows), emitted.emitted_at_us, strict=True))


def between(table: Counter, from_us: int, until_us: int) -> Counter:
    return Counter({row: n for row, n in table.items() if from_us <= row[1] < until_us})


def at(micros: int):
    return EPOCH + micros * MICROSECOND


def test_a_recompute_takes_late_rows_in_and_changes_nothing_else(spark, lake):
    stamped = commits(seed=1, days=4, late=True)
    drained(spark, lake, STREAM, FOLD, stamped, runs=4)
    rows = [row for commit in stamped for row in commit]
    live = table_of(lake, STREAM, FOLD)
    day_us = [START_US + day * DAY_US for day in range(5)]
    assert savepoints_of(lake, STREAM.name)

    for day in (2, 0, 1):
        recompute(spark, lake, STREAM, at(day_us[day]), at(day_us[day + 1]))
        table = table_of(lake, STREAM, FOLD)
        right = truth(rows, day_us[day + 1])
        assert between(table, day_us[day], day_us[day + 1]) == between(
            right, day_us[day], day_us[day + 1]
        )
    assert table != live
    assert between(table, 0, day_us[3]) == truth(rows, day_us[3])
    assert between(table, day_us[3], day_us[4]) == between(live, day_us[3], day_us[4])

    version = DeltaTable(lake.table(STREAM.name)).version()
    recompute(spark, lake, STREAM, at(day_us[0]), at(day_us[3]))
    assert DeltaTable(lake.table(STREAM.name)).version() == version
    recorded = read_ops(lake, "intervals", {"stream": STREAM.name}).to_pylist()
    again = max(recorded, key=lambda row: row["recomputed_at"])
    assert (again["rows_removed"], again["rows_added"]) == (0, 0)
    assert again["rows_before"] == again["rows_after"] > 0

    # Damaged savepoints are found out, and the others serve as well.
    known = savepoints_of(lake, STREAM.name)
    damaged = next(sp for sp in known if sp.until_us == day_us[2])
    wrong = {"savepoint_id": damaged.savepoint_id, "checksum": "0"}
    update_ops(lake, "savepoints", ["savepoint_id"], [wrong])
    recompute(spark, lake, STREAM, at(day_us[2]), at(day_us[3]))
    assert between(table_of(lake, STREAM, FOLD), 0, day_us[3]) == truth(rows, day_us[3])
    (finding,) = read_ops(lake, "findings", {"finding": "savepoint_damaged"}).to_pylist()
    assert damaged.savepoint_id in finding["detail"]
    assert damaged not in savepoints_of(lake, STREAM.name)
