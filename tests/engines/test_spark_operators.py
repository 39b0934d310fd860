"""Our streams beside Spark's own operators, on the same bronze and in the same session."""

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.checkpoint.committed_batch import settled_until
from include.fold.admission import micros_of
from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import Stream
from include.stream_definition import load_definition
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from tests.bronze import append_commit, stamp

pytestmark = pytest.mark.spark
# Workers cannot import tests, so what they need of this one travels with the query.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

MS = 1000
MINUTE_US = 60_000_000
START_US = 1_750_000_000_000_000
TEN_MINUTES = timedelta(minutes=10)
SESSIONS, COUNTS = (
    replace(stream_named(name), buckets=4, state_partitions=2, watermark_delay=TEN_MINUTES)
    for name in ("user_sessions", "user_counts")
)
GAP_US = SESSIONS.settings["gap"] // timedelta(microseconds=1)


class Beat(NamedTuple):
    user_id: str
    event_time_us: int


Commit = Sequence[Beat]


def bronze_of(spark: SparkSession, lake: Lake) -> DataFrame:
    return spark.read.format("delta").load(lake.bronze(SESSIONS.source))


def admitted(bronze: DataFrame) -> DataFrame:
    """The rows that are not late, as the README's query has it."""
    late = "coalesce(event_time <= arrival_watermark - INTERVAL 10 MINUTES, false)"
    return bronze.where(f"NOT {late}")


def land(lake: Lake, stream: Stream, runs: Sequence[Sequence[Commit]]) -> Iterator[None]:
    """Append the commits of one run after the other, stamped as ingestion stamps them."""
    fold = load_definition(SESSIONS).fold
    stamped = iter(stamp([commit for run in runs for commit in run]))
    for run in runs:
        for _ in run:
            append_commit(lake, stream.source, fold, next(stamped))
        yield


def table_rows(lake: Lake, stream: str) -> Counter[tuple[Any, ...]]:
    table = DeltaTable(lake.table(stream)).to_pyarrow_table()
    names = [name for name in table.column_names if name != "emitted_date"]
    rows = table.select(names).to_pylist()
    return Counter(tuple(map(plain, row.values())) for row in rows)


def plain(value: Any) -> Any:
    return micros_of(value) if isinstance(value, datetime) else value


def crowded_commits(seed: int) -> list[Commit]:
    """Out of order and late events, many of one user exactly a gap apart, or nearly."""
    rng = random.Random(seed)
    apart = [GAP_US, GAP_US - MS, GAP_US + MS, GAP_US - 1, GAP_US + 1, GAP_US // 3, 0, 2 * GAP_US]
    arrivals = []
    for number in range(12):
        at_us = START_US
        for _ in range(25):
            at_us += rng.choice(apart)
            on_time = rng.random() < 0.9
            delay = rng.uniform(0, 9) if on_time else rng.uniform(30, 90)
            arrivals.append((at_us + delay * MINUTE_US, Beat(f"user {number}", at_us)))
    beats = [arrived for _, arrived in sorted(arrivals)]
    return [beats[n : n + 40] for n in range(0, len(beats), 40)]


def in_runs(commits: Sequence[Commit], runs: int) -> list[list[Commit]]:
    """The commits, cut into that many runs."""
    size = -(-len(commits) // runs)
    return [list(commits[n : n + size]) for n in range(0, len(commits), size)]


# Spark merges an event exactly at the end of a session's gap, as if the end belonged to it; ours
# opens a new session there. So our gap is Spark's with a microsecond less.
SPARK_GAP = f"{GAP_US - 1} microseconds"


def spark_sessions(events: DataFrame) -> DataFrame:
    """The sessions that `session_window` makes of a bounded frame, times in microseconds."""
    window = F.session_window("event_time", SPARK_GAP).alias("session")
    end_us = F.unix_micros("session.end") + 1
    return (
        events.groupBy(window, "user_id")
        .count()
        .select(
            "user_id",
            F.unix_micros("session.start").alias("start_us"),
            (end_us - GAP_US).alias("last_us"),
            "count",
            end_us.alias("end_us"),
        )
    )


@pytest.mark.full
def test_sessions_are_those_of_session_window(spark, lake):
    for _ in land(lake, SESSIONS, in_runs(crowded_commits(1), 3)):
        drain(SparkEngine(spark), lake, SESSIONS)
    until_us = micros_of(settled_until(lake, read_generations(lake, SESSIONS.name)))
    closed = spark_sessions(admitted(bronze_of(spark, lake))).where(F.col("end_us") < until_us)
    assert table_rows(lake, SESSIONS.name) == Counter(map(tuple, closed.collect()))
    runs = read_ops(lake, "runs").to_pylist()
    assert sum(run["rows_late"] for run in runs) > 0 < runs[-1]["rows_pending"]


@pytest.mark.e2e
def test_counts_are_those_of_group_by(spark, lake):
    for _ in land(lake, COUNTS, in_runs(crowded_commits(2), 3)):
        drain(SparkEngine(spark), lake, COUNTS)
    until_us = micros_of(settled_until(lake, read_generations(lake, COUNTS.name)))
    settled = admitted(bronze_of(spark, lake)).where(F.unix_micros("event_time") < until_us)
    expected = {
        row["user_id"]: row["count"] for row in settled.groupBy("user_id").count().collect()
    }
    assert {user: count for user, count, _ in table_rows(lake, COUNTS.name)} == expected
    assert sum(expected.values()) < bronze_of(spark, lake).count()
