"""Lakes with nothing but `ops`: as many runs of as many streams as asked for, written directly."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from include.fold.admission import micros_of
from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import Stream
from include.stream.record import RecordEntry
from include.stream.stream_identity import code_fingerprint
from tests.stream.entries import entry, record
from tests.written_savepoint import written_savepoint

NOW = datetime(2026, 11, 24, 12, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
PARTITIONS = 4


def streams_like(count: int, of: str = "device_signals") -> list[Stream]:
    return [replace(stream_named(of), name=f"stream_{n:03}") for n in range(count)]


def write_history(lake: Lake, streams: list[Stream], runs: int) -> None:
    """`runs` hourly runs of each stream up to NOW, its source's, and what came of them."""
    for name, rows in _tables(streams, runs):
        append_ops(lake, name, rows)
    for n, stream in enumerate(streams):
        keys = pa.table({"key": range(5_000 + n)})
        written_savepoint(lake, stream.name, NOW.replace(hour=0, minute=0), keys)
        record(lake, lived(micros_of(until(0, 1))), stream.name, row=_generation(stream))


def _tables(streams: list[Stream], runs: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    at = [(n, stream, run) for n, stream in enumerate(streams) for run in range(runs)]
    yield (
        "runs",
        [_run(n, s, run, runs) for n, s, run in at] + [_ingest(run, runs) for run in range(runs)],
    )
    yield "batches", [_batch(n, s, run, runs) for n, s, run in at]
    yield "figures", [row for n, s, run in at for row in _figures(n, s, run, runs)]
    yield "findings", [f for n, s in enumerate(streams) for f in _findings(n, s)]


def ended(run: int, runs: int) -> datetime:
    return NOW.replace(minute=2) - (runs - 1 - run) * HOUR


def until(run: int, runs: int) -> datetime:
    return ended(run, runs) - timedelta(minutes=14)


def _run(n: int, stream: Stream, run: int, runs: int) -> dict[str, Any]:
    failed = run == runs - 3 and n == 1
    return {
        "run_id": f"{stream.name}/{run}",
        "job": "run_stream",
        "subject": stream.name,
        "started_at": ended(run, runs) - timedelta(seconds=40 + run % 7),
        "ended_at": ended(run, runs),
        "outcome": "failed" if failed else "succeeded",
        "error": "StateFunctionError: <b>it</b> & failed" if failed else None,
        "batches": None if failed else 1,
        "rows_in": None if failed else 1_000 + 10 * n + run % 13,
        "rows_folded": None if failed else 990 + 10 * n + run % 13,
        "rows_late": None if failed else run % 3,
        "rows_pending": None if failed else 10 + n,
        "rows_out": None if failed else 100 + run % 5,
        "until": None if failed else until(run, runs),
        "jvm_rss_bytes": 700_000_000,
        "python_rss_bytes": 300_000_000,
    }


def _ingest(run: int, runs: int) -> dict[str, Any]:
    return {
        "run_id": f"signals/{run}",
        "job": "ingest_source",
        "subject": "signals",
        "started_at": ended(run, runs) - timedelta(seconds=50),
        "ended_at": ended(run, runs) - timedelta(seconds=48),
        "outcome": "succeeded",
        "rows_landed": 1_101,
        "rows_bronze": 1_100,
        "rows_quarantined": 1,
    }


def _batch(n: int, stream: Stream, run: int, runs: int) -> dict[str, Any]:
    durations = {"triggerExecution": 20_000, "queryPlanning": 3_000, "addBatch": 15_000}
    return {
        "stream": stream.name,
        "generation": 1,
        "batch_id": run,
        "run_id": f"{stream.name}/{run}",
        "committed_at": ended(run, runs) - timedelta(seconds=2),
        "rows_in": 1_000 + 10 * n + run % 13,
        "rows_late": run % 3,
        "state_bytes": 1_000_000 + run,
        "durations_ms": json.dumps(durations | {"walCommit": 500, "commitOffsets": 500}),
        "state_metrics": json.dumps([{"rocksdbGetLatency": 100, "rocksdbPutLatency": 200}]),
        "memory_mb": 256,
    }


def _figures(n: int, stream: Stream, run: int, runs: int) -> Iterator[dict[str, Any]]:
    known = {"subject": stream.name, "at": ended(run, runs) + timedelta(seconds=5)}
    known |= {"run_id": f"{stream.name}/{run}"}
    for part in ("metadata", "offsets", "commits", "sources"):
        yield known | {"figure": "checkpoint_bytes", "part": part, "value": 100 + run}
    for partition in range(PARTITIONS):
        place = {"figure": "checkpoint_bytes", "part": f"state/0/{partition}"}
        yield known | place | {"value": 10_000 * (1 + partition) + n + run}
    yield known | {"figure": "files", "value": 28}
    yield known | {"figure": "replay_versions", "value": run % 10}


def _generation(stream: Stream) -> dict[str, Any]:
    return {
        "stream": stream.name,
        "generation": 1,
        "buckets": 32,
        "state_partitions": PARTITIONS,
        "source": stream.source,
        "output_mode": "append",
        "watermark_delay_ms": 600_000,
    }


def lived(until_us: int) -> RecordEntry:
    """The record entry of live rows until then."""
    code = code_fingerprint(streams_like(1)[0], None)
    return entry(1, "live", None, until_us, delay_us=600_000_000, codes=(code,), bronze_id=None)


def _findings(n: int, stream: Stream) -> Iterator[dict[str, Any]]:
    known = {"subject": stream.name, "run_id": f"{stream.name}/x", "detail": "<script>alert(1)"}
    if n % 2:
        now = {"found_at": NOW - timedelta(minutes=27), "action": "`./stateful` <b>do</b>"}
        yield known | now | {"finding": "skew", "severity": "warning", "figure": 5.0, "limit": 4.0}
        yield known | now | {"finding": "late_rows", "severity": "warning", "count": 3}
    yield known | {
        "finding": "checkpoint_bytes",
        "severity": "error",
        "found_at": NOW - timedelta(days=2),
    }
