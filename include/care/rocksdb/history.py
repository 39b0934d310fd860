"""What a stream's recorded batches say of its state store, and which of them may be compared.

Only ordinary batches of `ops/batches` count. A compaction works under settings of its own, and
the first batch of a generation creates its stores. A batch is like another that read as many
rows, within a factor of two, and whose start had replayed as many change logs, within a
quarter: both grow and shrink by themselves, the logs with each run until a compaction.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.settings import Stream

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
ROWS_FACTOR = 2
REPLAY_TOLERANCE = 0.25
# Of fewer, a noise that looks small by luck lets changes pass that have no effect.
MIN_DIFFERENCES = 8


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
    """The ordinary batches of a stream's generation, in order; and which of its runs failed."""

    generation: int
    batches: tuple[Batch, ...]
    unmeasured: int  # batches whose metrics are missing or cannot be read
    failed: tuple[datetime, ...]  # when these runs began, whatever their generation

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
    runs = read_ops(lake, "runs", {"job": "run_stream", "subject": stream.name}).to_pylist()
    return history_of(generation, rows, runs)


def history_of(
    generation: int, rows: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]
) -> History:
    """The history in rows of `ops/batches` and of `ops/runs` (ordinary runs only)."""
    by_run = {run["run_id"]: run for run in runs}
    ordinary = [row for row in rows if row["run_id"] in by_run and row["batch_id"]]
    batches = [_batch(row, by_run[row["run_id"]]) for row in ordinary]
    measured = [batch for batch in batches if batch is not None]
    return History(
        generation=generation,
        batches=tuple(sorted(measured, key=lambda batch: batch.batch_id)),
        unmeasured=len(batches) - len(measured),
        failed=tuple(run["started_at"] for run in runs if run["outcome"] == "failed"),
    )


def _batch(row: Mapping[str, Any], run: Mapping[str, Any]) -> Batch | None:
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
    return Batch(
        batch_id=row["batch_id"],
        run_id=row["run_id"],
        profile=row["profile"],
        rows_in=row["rows_in"] or 0,
        figures=named,
    )


def is_like(one: Batch, other: Batch) -> bool:
    """Whether the two may be compared."""
    logs = one.figures["logs_replayed"], other.figures["logs_replayed"]
    rows = one.rows_in, other.rows_in
    near = max(logs) - min(logs) <= REPLAY_TOLERANCE * max(logs)
    return near and max(rows) <= ROWS_FACTOR * min(rows)


def changes(batches: Sequence[Batch], before: Sequence[Batch], figure: str) -> list[float]:
    """How much of `figure` each batch has less (-) or more than its like in `before`.

    The logarithm of the ratio, so that to double and to halve weigh the same: `as_percent`
    is for people. Left out is a batch with no like before, and one that has none of `figure`,
    as they: where there is nothing to gain, nothing can be learnt.
    """
    found = []
    for batch in batches:
        like = [b.figures[figure] for b in before if b is not batch and is_like(b, batch)]
        was, now = median(like or [0]), batch.figures[figure]
        if like and (was or now):
            # One byte or millisecond more than none is no infinite change.
            found.append(math.log((now + 1) / (was + 1)))
    return found


def as_percent(change: float) -> str:
    """A change for people: -50 % is half of it."""
    return f"{100 * math.expm1(change):+.0f} %"


def noise(batches: Sequence[Batch], figure: str) -> float | None:
    """How much a batch differs from its like under one profile; None where too few have any.

    The median of the changes without a sign: one odd batch does not make everything noise.
    """
    differences = [abs(change) for change in changes(batches, batches, figure)]
    return median(differences) if len(differences) >= MIN_DIFFERENCES else None
