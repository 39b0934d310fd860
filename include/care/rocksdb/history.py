"""What a stream's recorded batches say of its state store: `ops/batches` as plain figures.

Only ordinary batches count. A compaction works under settings of its own, and the first batch
of a generation creates its stores.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.settings import Stream

ORDINARY_JOB = "run_stream"
# Spark's custom metrics of the operator, by the names that we use.
COUNTERS = {
    "logs_replayed": "rocksdbNumReplayChangelogFiles",
    "gets": "rocksdbGetCount",
    "puts": "rocksdbPutCount",
    "bytes_read": "rocksdbTotalBytesRead",
    "bytes_written": "rocksdbTotalBytesWritten",
    "bytes_flushed": "rocksdbTotalBytesWrittenByFlush",
    "bytes_compacted": "rocksdbTotalBytesWrittenByCompaction",
    "block_misses": "rocksdbReadBlockCacheMissCount",
    "sst_bytes": "rocksdbSstFileSize",
}
CLOCKS = {
    "load_ms": "rocksdbLoadLatencyMs",  # replay is a part of it
    "replay_ms": "rocksdbReplayChangeLogLatencyMs",
    "get_ms": "rocksdbGetLatency",
    "put_ms": "rocksdbPutLatency",
    "flush_ms": "rocksdbCommitFlushLatency",
    "snapshot_ms": "rocksdbCommitCheckpointLatency",
    "compaction_ms": "rocksdbTotalCompactionLatencyMs",
    "stall_ms": "rocksdbWriterStallLatencyMs",
    "upload_ms": "rocksdbCommitFileSyncLatencyMs",
}
# Each part of the time once: replay is in load, compaction and stalls are in the others.
STORE_CLOCKS = ("load_ms", "get_ms", "put_ms", "flush_ms", "snapshot_ms", "upload_ms")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch, as far as it was measured.

    `figures` has COUNTERS and CLOCKS (sums over the state partitions, which work at the same
    time), and besides: batch_ms; store_ms, all clocks of the store; bytes_rewritten, what the
    store flushed and compacted; store_memory, of all stores; rss_bytes, the most that JVM and
    Python of its run held.
    """

    batch_id: int
    run_id: str
    profile: int | None
    rows_in: int
    figures: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class History:
    """The ordinary batches of a stream's generation, in order."""

    generation: int
    batches: tuple[Batch, ...]
    unmeasured: int = 0  # batches whose metrics are missing or cannot be read

    def runs_after(self, batch_id: int) -> int:
        """How many runs there were after that batch."""
        return len({b.run_id for b in self.batches if b.batch_id > batch_id})

    def under(self, profile: int) -> tuple[Batch, ...]:
        """The batches with data that ran with that profile."""
        return tuple(b for b in self.batches if b.profile == profile and b.rows_in)


def read_history(lake: Lake, stream: Stream, generation: int) -> History:
    """What is recorded of the stream's ordinary batches; empty before its first run."""
    where = {"stream": stream.name, "generation": generation}
    rows = read_ops(lake, "batches", where).to_pylist()
    runs = read_ops(lake, "runs", {"job": ORDINARY_JOB, "subject": stream.name}).to_pylist()
    return history_of(generation, rows, runs)


def history_of(
    generation: int, rows: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]
) -> History:
    """The history in rows of `ops/batches` and of `ops/runs` (ordinary runs only)."""
    by_run = {run["run_id"]: run for run in runs}
    batches, unmeasured = [], 0
    for row in sorted(rows, key=lambda row: row["batch_id"]):
        run = by_run.get(row["run_id"])
        if run is None or not row["batch_id"]:
            continue
        figures = _figures(row, run)
        if figures is None:
            unmeasured += 1
        else:
            batches.append(
                Batch(
                    batch_id=row["batch_id"],
                    run_id=row["run_id"],
                    profile=row["profile"],
                    rows_in=row["rows_in"] or 0,
                    figures=figures,
                )
            )
    return History(generation=generation, batches=tuple(batches), unmeasured=unmeasured)


def _figures(row: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, float] | None:
    """None when a killed run, or an earlier release, has left no metrics."""
    try:
        (metrics,) = json.loads(row["state_metrics"])
        named = {name: float(metrics[metric]) for name, metric in (COUNTERS | CLOCKS).items()}
        named["batch_ms"] = float(json.loads(row["durations_ms"])["triggerExecution"])
        named["store_memory"] = float(row["state_bytes"])
    except (KeyError, TypeError, ValueError):
        return None
    named["store_ms"] = sum(named[name] for name in STORE_CLOCKS)
    named["bytes_rewritten"] = named["bytes_flushed"] + named["bytes_compacted"]
    named["rss_bytes"] = float((run["jvm_rss_bytes"] or 0) + (run["python_rss_bytes"] or 0))
    return named
