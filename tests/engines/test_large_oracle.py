"""Two million log lines through the live engine, equal to SQL over the same bronze to the row."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from include.fold.admission import EPOCH
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.registry import stream_named
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain

pytestmark = [pytest.mark.spark, pytest.mark.full]

LINES, SERVICES, COMMITS, RUNS = 2_000_000, 20_000, 12, 3
MS, MINUTE_US = 1_000, 60_000_000
HOUR_US, DAY_US = 60 * MINUTE_US, 24 * 60 * MINUTE_US
START_US = 1_772_323_200_000_000  # 2026-03-01
SPAN_US = 16 * HOUR_US  # a line of each service every ten minutes: most gaps are silences
DRAWN = LINES + LINES // 20  # the last ones to arrive have not landed yet
HEALTH = replace(stream_named("service_health"), buckets=32, state_partitions=2)
DELAY_US = HEALTH.watermark_delay // timedelta(microseconds=1)
INSTANT = pa.timestamp("us", tz="UTC")


class Lines(NamedTuple):
    """Log lines in the order in which they arrive."""

    service: Any
    time_us: Any
    arrived_us: Any


class Clock(NamedTuple):
    """What bronze knows after a commit."""

    watermark_us: int | None
    ingested_us: int


def draw_lines() -> Lines:
    """Out of order by up to the delay; some hours late, some of clocks that run ahead."""
    rng = np.random.default_rng(20260301)
    time_us = START_US + rng.integers(0, SPAN_US, DRAWN)
    delay_us = rng.integers(0, DELAY_US, DRAWN)
    kind = rng.random(DRAWN)
    delay_us = np.where(kind < 0.01, rng.integers(0, 6 * HOUR_US, DRAWN), delay_us)
    delay_us = np.where(kind > 0.995, -rng.integers(0, HOUR_US, DRAWN), delay_us)
    # A tenth at whole minutes, so that lines tie, and lie exactly on timeouts and watermarks.
    whole = time_us // MINUTE_US * MINUTE_US
    time_us = np.where(rng.random(DRAWN) < 0.1, whole, time_us)
    service = rng.integers(0, SERVICES, DRAWN)
    order = np.argsort(time_us + delay_us, kind="stable")[:LINES]
    return Lines(*(column[order] for column in (service, time_us, time_us + delay_us)))


def append_lines(lake: Lake, lines: Lines, before: Clock, number: int) -> Clock:
    """One commit with all columns of bronze, stamped as ingestion stamps them."""
    # Run at whole minutes, so that lines lie exactly on watermarks, too.
    ingested_us = -(-int(lines.arrived_us[-1]) // MINUTE_US) * MINUTE_US
    newest_us = min(int(lines.time_us.max()), ingested_us) // MS * MS
    after = Clock(max(newest_us, before.watermark_us or newest_us), ingested_us)
    names = pa.array([f"service-{n:05}" for n in range(SERVICES)])
    rows = len(lines.service)
    own = {
        "service": names.take(pa.array(lines.service)),
        "level": pa.array(["INFO"] * rows),
        "message": pa.nulls(rows, pa.string()),
        "source_file": pa.array([f"lines-{number:02}.jsonl"] * rows),
    }
    append(lake, own, lines.time_us, before, after, is_clock=False)
    return after


def append_clock_row(lake: Lake, watermark_us: int, before: Clock) -> None:
    nothing = {
        name: pa.nulls(1, pa.string()) for name in ("service", "level", "message", "source_file")
    }
    after = Clock(watermark_us, before.ingested_us + MS)
    append(lake, nothing, np.array([watermark_us]), before, after, is_clock=True)


def append(
    lake: Lake, own: dict[str, Any], time_us: Any, before: Clock, after: Clock, *, is_clock: bool
) -> None:
    rows = len(time_us)
    stamped = {
        "event_time": pa.array(time_us, INSTANT),
        "event_date": pa.array((time_us // DAY_US).astype("int32")).cast(pa.date32()),
        "ingested_at": pa.array([after.ingested_us] * rows, INSTANT),
        "arrival_watermark": pa.array([before.watermark_us] * rows, INSTANT),
        "commit_watermark": pa.array([after.watermark_us] * rows, INSTANT),
        "is_clock": pa.array([is_clock] * rows),
    }
    table = pa.table(own | stamped)
    write_deltalake(lake.bronze(HEALTH.source), table, mode="append", partition_by=["event_date"])


def land_in_runs(lake: Lake, lines: Lines) -> Iterator[None]:
    """The commits of one run after the other; the last ends with a clock row."""
    clock = Clock(None, 0)
    bounds = np.linspace(0, LINES, COMMITS + 1).astype(int)
    for number, (start, end) in enumerate(pairwise(bounds), 1):
        commit = Lines(*(column[start:end] for column in lines))
        clock = append_lines(lake, commit, clock, number)
        if number == COMMITS:
            append_clock_row(lake, clock.ingested_us + 5 * MINUTE_US, clock)
        if number % (COMMITS // RUNS) == 0:
            yield


# Nothing of the fold is in here: lateness as the README's query has it, and gaps between lines.
FATES = f"""
    CREATE TABLE fates AS SELECT service, epoch_us(event_time) AS time, CASE
        WHEN event_time <= arrival_watermark - INTERVAL 5 MINUTES THEN 'late'
        WHEN epoch_us(event_time) > $watermark_us - {DELAY_US} THEN 'pending'
        ELSE 'folded' END AS fate
    FROM bronze WHERE NOT is_clock
"""
EXPECTED = f"""
    CREATE TABLE expected AS
    WITH gaps AS (
        SELECT service, time + 300_000_000 AS stale_at,
               lead(time) OVER (PARTITION BY service ORDER BY time) AS next
        FROM fates WHERE fate = 'folded'
    ), silences AS (
        SELECT * FROM gaps WHERE stale_at < next
        OR (next IS NULL AND stale_at <= $watermark_us - {DELAY_US})
    )
    SELECT service, 'stale' AS status, stale_at AS emitted_us FROM silences
    UNION ALL SELECT service, 'ok', next FROM silences WHERE next IS NOT NULL
"""
FOUND = """
    CREATE TABLE found AS
    SELECT service, status, epoch_us(emitted_at) AS emitted_us FROM changes
"""


def arrow(path: str, columns: list[str]) -> pa.Table:
    return DeltaTable(path).to_pyarrow_table(columns=columns)


def oracle(lake: Lake) -> duckdb.DuckDBPyConnection:
    """A database with the tables fates, expected and found."""
    sql = duckdb.connect()
    columns = ["service", "event_time", "arrival_watermark", "commit_watermark", "is_clock"]
    sql.register("bronze", arrow(lake.bronze(HEALTH.source), columns))
    sql.register("changes", arrow(lake.table(HEALTH.name), ["service", "status", "emitted_at"]))
    newest = sql.execute("SELECT max(epoch_us(commit_watermark)) FROM bronze").fetchone()
    sql.execute(FATES, {"watermark_us": newest[0]})
    sql.execute(EXPECTED, {"watermark_us": newest[0]})
    sql.execute(FOUND)
    return sql


def test_two_million_lines_give_the_health_that_sql_finds(spark, lake):
    for _ in land_in_runs(lake, draw_lines()):
        drain(SparkEngine(spark), lake, HEALTH)

    with oracle(lake) as sql:
        for one, other in (("expected", "found"), ("found", "expected")):
            differ = sql.execute(f"SELECT * FROM {one} EXCEPT ALL SELECT * FROM {other} LIMIT 5")
            assert differ.fetchall() == [], f"in {one} only"
        changes = sql.execute("SELECT status, count(*) FROM found GROUP BY status").fetchall()
        fates = dict(sql.execute("SELECT fate, count(*) FROM fates GROUP BY fate").fetchall())
        (last_us,) = sql.execute("SELECT max(emitted_us) FROM found").fetchone()

    runs = sorted(read_ops(lake, "runs").to_pylist(), key=lambda run: run["ended_at"])
    assert len(runs) == RUNS
    settled_us = (runs[-1]["until"] - EPOCH) // timedelta(microseconds=1) - 1
    assert last_us == settled_us  # some timeouts are exactly at the last watermark
    assert sum(run["rows_in"] for run in runs) == sum(fates.values()) == LINES
    counted = {
        "folded": sum(run["rows_folded"] for run in runs),
        "late": sum(run["rows_late"] for run in runs),
        "pending": runs[-1]["rows_pending"],
    }
    assert counted == fates  # none of the three is empty, or it would not be in fates
    assert min(count for _, count in changes) > LINES / 3
