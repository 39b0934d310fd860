"""One state function under our engine and under Spark's `applyInPandasWithState`.

Both read the same bronze in the same session, cut into runs in the same way. (Of other cuts what
Spark emits depends on the cut, and ours on the events' own times alone.)
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import pandas as pd
import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.definition import flat_map_groups_with_state
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import SavepointRules
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from tests.bronze import append_commit, stamp
from tests.declared import with_fold

pytestmark = [pytest.mark.spark, pytest.mark.turn(2)]
# Workers cannot import tests, so what they need of this one travels with the query.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

MINUTE_US = 60_000_000
START_US = 1_750_000_020_000_000  # a whole minute
SILENCE = 40  # minutes
DELAY = 10  # minutes
WATCH = replace(
    stream_named("user_counts"),
    name="watch",
    buckets=4,
    state_partitions=2,
    watermark_delay=timedelta(minutes=DELAY),
    savepoints=SavepointRules(cadence=None),  # it has no file that they could name
)


class Beat(NamedTuple):
    user_id: str
    event_time_us: int


class Seen(NamedTuple):
    minute: int  # of the last beat


class Said(NamedTuple):
    user_id: str
    what: str


Run = Sequence[Sequence[Beat]]  # commits
Outputs = list[tuple[str, str]]

CLOCK = "clock"  # a user who only moves the watermark: what is said of it is left out


def at(minute: int, *users: str) -> list[Beat]:
    """A beat of each of these users, and of the clock."""
    return [Beat(user, START_US + minute * MINUTE_US) for user in (*users, CLOCK)]


def report_silence(user: str, beats: Iterator[Beat], state: Any) -> Iterator[tuple[str, str]]:
    """Says when a user was last heard of, after SILENCE minutes without a beat."""
    if state.hasTimedOut:
        yield user, f"silent since {state.get[0]}"
        state.remove()
        return
    last_us = max(beat.event_time_us for beat in beats)
    state.update(((last_us - START_US) // MINUTE_US,))
    state.setTimeoutTimestamp(last_us // 1000 + SILENCE * 60_000)


FOLD = flat_map_groups_with_state(
    report_silence,
    key="user_id",
    event=Beat,
    state=Seen,
    output=Said,
    output_mode="append",
    timeout="EventTimeTimeout",
)


def on_frames(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """`report_silence` as `applyInPandasWithState` wants it."""
    rows = (row for frame in frames for row in frame.itertuples(index=False))
    yield pd.DataFrame(list(report_silence(key[0], rows, state)), columns=Said._fields)


def run_spark(spark: SparkSession, lake: Lake) -> Outputs:
    """Return what one availableNow run of Spark's own operator emits."""
    bronze = spark.readStream.format("delta").load(lake.bronze(WATCH.source))
    beats = bronze.select(
        "user_id", "event_time", F.unix_micros("event_time").alias("event_time_us")
    )
    said = (
        beats.withWatermark("event_time", f"{DELAY} minutes")
        .groupBy("user_id")
        .applyInPandasWithState(
            on_frames,
            "user_id string, what string",
            "minute bigint",
            "append",
            "EventTimeTimeout",
        )
    )
    emitted: Outputs = []

    def collect(batch: DataFrame, batch_id: int) -> None:
        emitted.extend(map(tuple, batch.collect()))

    query = (
        said.writeStream.foreachBatch(collect)
        .option("checkpointLocation", f"{lake.root}/checkpoints/spark")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return emitted


def land(lake: Lake, runs: Sequence[Run]) -> Iterator[None]:
    """Lands the commits of one run after the other, stamped as ingestion stamps them."""
    stamped = iter(stamp([commit for run in runs for commit in run]))
    for run in runs:
        for _ in run:
            append_commit(lake, WATCH.source, FOLD, next(stamped))
        yield


def our_rows(lake: Lake) -> Outputs:
    table = DeltaTable(lake.table(WATCH.name)).to_pyarrow_table(columns=list(Said._fields))
    return [tuple(row.values()) for row in table.to_pylist()]


def said_of_users(said: Outputs) -> Outputs:
    return sorted((user, what) for user, what in said if user != CLOCK)


@pytest.mark.full
def test_both_report_the_same_silences_where_runs_are_small_and_in_order(spark, lake):
    """One beat a user and run, and a timeout's watermark well before the user's return: the case
    that Spark's operator is made for."""
    runs = [
        [at(0, "a", "b", "d")],
        [at(30, "a", "d")],
        [at(60, "c", "d")],
        [at(90, "b", "d")],
        [at(120, "a", "d")],
        [at(150, "d")],
    ]
    stream, sparks = with_fold(WATCH, FOLD), []
    for _ in land(lake, runs):
        drain(SparkEngine(spark), lake, stream)
        sparks += run_spark(spark, lake)
    silent = [("a", 30), ("b", 0), ("b", 90), ("c", 60)]
    expected = [(user, f"silent since {minute}") for user, minute in silent]
    assert said_of_users(our_rows(lake)) == said_of_users(sparks) == expected
