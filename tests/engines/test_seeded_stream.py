"""Streams that begin with an initial state: from the file or table to the product table."""

import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from include.lake.ops import read_ops
from include.registry import stream_named
from include.settings import SavepointRules
from include.stream_definition import load_definition
from include.streams.service_health import LogLine
from include.streams.user_counts import UserEvent
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.engines.state_rows import read_states
from spark_jobs.run_stream import drain
from tests.bronze import EPOCH, ClockAt, Happened, append_commit, stamp

pytestmark = pytest.mark.spark

MINUTE_US = 60_000_000
AS_OF = "2026-03-01T00:00:00Z"
AS_OF_US = 1_772_323_200_000_000
HEALTH = replace(
    stream_named("service_health"),
    buckets=4,
    state_partitions=2,
    watermark_delay=timedelta(minutes=1),
    savepoints=SavepointRules(cadence=None),
)
COUNTS = replace(
    stream_named("user_counts"),
    buckets=4,
    state_partitions=2,
    savepoints=SavepointRules(cadence=None),
)


def give(lake, stream, keys: list[dict[str, Any]], as_of: str = AS_OF) -> Path:
    file = Path(lake.initial_state_file(stream.name))
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"as_of": as_of, "keys": keys}))
    return file


def line(service: str, minutes: float) -> Happened:
    return Happened(LogLine(service), AS_OF_US + int(minutes * MINUTE_US))


def changes(lake) -> Counter[Any]:
    """(service, status, minutes after as_of) of the product table."""
    rows = DeltaTable(lake.table(HEALTH.name)).to_pyarrow_table().to_pylist()
    micros = timedelta(microseconds=1)
    return Counter(
        (r["service"], r["status"], ((r["emitted_at"] - EPOCH) // micros - AS_OF_US) / MINUTE_US)
        for r in rows
    )


@pytest.mark.e2e
def test_a_service_that_is_only_in_the_initial_state_becomes_stale(spark, lake):
    keys = [
        {"key": "silent", "state": {"stale": False}},
        {"key": "soon", "state": {"stale": False}, "timeout_at": "2026-03-01T00:01:00Z"},
        {"key": "was stale", "state": {"stale": True}},
        {"key": "lively", "state": {"stale": False}},
        {"key": "back", "state": {"stale": True}},
    ]
    give(lake, HEALTH, keys)
    # A line before as_of is in the initial state already; one exactly at it is not.
    before, at = line("lively", -0.5), line("lively", 0)
    stamped = stamp(
        [[before, at, line("back", 2)], [line("lively", 4)], ClockAt(AS_OF_US + 20 * MINUTE_US)]
    )
    fold = load_definition(HEALTH).fold
    for rows in stamped:  # a restart between every two commits
        append_commit(lake, HEALTH.source, fold, rows)
        drain(SparkEngine(spark), lake, HEALTH)

    assert changes(lake) == {
        ("silent", "stale", 5.0): 1,
        ("soon", "stale", 1.0): 1,
        ("lively", "stale", 9.0): 1,
        ("back", "ok", 2.0): 1,
        ("back", "stale", 7.0): 1,
    }
    runs = read_ops(lake, "runs").to_pylist()
    assert sum(run["rows_before_initial_state"] for run in runs) == 1
    assert sum(run["rows_folded"] for run in runs) == 3
    states = read_states(spark, lake.checkpoint(HEALTH.name, 1), fold).collect()
    assert {row["key"]: row["timeout_at_us"] for row in states} == {
        key["key"]: None for key in keys
    }


@pytest.mark.e2e
def test_an_update_table_shows_initial_states_from_the_first_run_on(spark, lake):
    give(
        lake,
        COUNTS,
        [{"key": k, "state": {"total_count": n}} for k, n in [("ann", 10), ("bob", 3)]],
    )
    fold = load_definition(COUNTS).fold
    stamped = stamp([[UserEvent("ann", AS_OF_US + 1), UserEvent("eve", AS_OF_US + 30 * MINUTE_US)]])
    append_commit(lake, COUNTS.source, fold, stamped[0])
    for _ in range(2):
        drain(SparkEngine(spark), lake, COUNTS)
        rows = DeltaTable(lake.table(COUNTS.name)).to_pyarrow_table().to_pylist()
        assert {row["user_id"]: row["total_count"] for row in rows} == {"ann": 11, "bob": 3}
