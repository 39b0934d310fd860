"""Size the memory of a stream's state stores by what its runs have measured, one change at a time.

Too little memory for what is written shows: a run flushes and compacts, on the local disk, what it
has just written or replayed. The formula is `wanted_mb`. A change is a finding, and so is what
became of it: the next run with data decides whether it stays, and a run that fails ends it.

Of the other settings one value was the best on every workload measured (`include/spark/conf.py`);
hands may hold any that Spark knows. Spark takes any name below
`spark.sql.streaming.stateStore.rocksdb` without a word, and a wrong one does nothing: so only names
from here are ever set, and a test holds them against Spark's own.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow.compute as pc

from include.catalogue import FINDINGS
from include.lake.errors import SettingsError
from include.lake.generations import read_generations
from include.lake.ops import read_ops, record_findings, runs_of
from include.lake.paths import Lake
from include.settings import MIB, Stream
from include.spark.conf import STATE_STORE
from include.text_table import bytes_text, did_you_mean

MAX_MEMORY_MB, BOUNDED = "maxMemoryUsageMB", "boundedMemoryUsage"
# What all stores of a process have together, as the first of them had it.
OF_PROCESS = (BOUNDED, MAX_MEMORY_MB, "writeBufferCacheRatio", "highPriorityPoolRatio")
# What hands may hold; values are Spark's to refuse.
BY_HAND = (
    *(MAX_MEMORY_MB, "writeBufferCacheRatio", "highPriorityPoolRatio", "writeBufferSizeMB"),
    *("maxWriteBufferNumber", "blockSizeKB", "blockCacheSizeMB", "maxOpenFiles"),
    *("lockAcquireTimeoutMs", "memoryUpdateIntervalMs", "minDeltasForSnapshot", BOUNDED),
    *("changelogCheckpointing.enabled", "trackTotalNumberOfRows", "compactOnCommit"),
    *("resetStatsOnLoad", "allowFAllocate", "verifyNonEmptyFilesInZip", "compression"),
    "checkStaleReusedFilesInSnapshot",
)
PER_PARTITION_MB = FLOOR_MB = 64
# Two jobs may run at once, each with a heap and with Python workers beside it.
MACHINE_SHARE = 8
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
LEAST_REWRITTEN = 1 * MIB  # a batch that flushes and compacts less has memory enough
LEAST_CHANGE = 1.25  # a smaller change of the memory is not worth a trial
MARGIN = 0.8  # a change stays if stores rewrite this part of what they did, or less
PATIENCE_RUNS = 20  # that pass after a change was rolled back
WRITTEN, FLUSHED, COMPACTED = (
    "rocksdbTotalBytesWritten",
    "rocksdbTotalBytesWrittenByFlush",
    "rocksdbTotalBytesWrittenByCompaction",
)
TRIED, RETAINED, ROLLED_BACK = CHANGES = ["memory_tried", "memory_kept", "memory_rolled_back"]
BATCH_COLUMNS = ("batch_id", "run_id", "committed_at", "memory_mb", "rows_in", "state_metrics")
Settings = Mapping[str, str]  # by Spark's short names
Row = Mapping[str, Any]


def hand_settings(stream: Stream) -> Settings:
    """The stream's `rocksdb`; SettingsError names the setting that is wrong.

    So it is for those that the first run writes into the checkpoint: Spark ignores another value.
    """
    for name in stream.rocksdb.keys() - set(BY_HAND):
        said = f"stream {stream.name}: rocksdb setting {name!r} cannot be set"
        raise SettingsError(f"{said}{did_you_mean(name, BY_HAND)}", subject=name)
    return stream.rocksdb


def full_name(name: str) -> str:
    """A setting as a session takes it."""
    of_rocksdb = "" if name == "minDeltasForSnapshot" else "rocksdb."
    return f"{STATE_STORE}.{of_rocksdb}{name}"


def changes_of(lake: Lake, stream: str) -> list[Row]:
    """The findings on changes of a stream's memory, the newest first."""
    of_memory = pc.field("finding").isin(CHANGES)
    rows = read_ops(lake, "findings", {"subject": stream}, wanted=of_memory)
    return rows.sort_by([("found_at", "descending")]).to_pylist()  # type: ignore[no-any-return]


def run_settings(lake: Lake, stream: Stream) -> Settings:
    """The memory of a run that starts now, and what is held by hand.

    SettingsError when the stream's entry holds a setting that is unknown.
    """
    changes, machine = changes_of(lake, stream.name), machine_memory_bytes()
    runs = _runs(lake, stream) if changes and changes[0]["finding"] == TRIED else ()
    return History(stream=stream, changes=changes, runs=runs, machine_bytes=machine).settings


def _runs(lake: Lake, stream: Stream) -> Sequence[Row]:
    return list(runs_of(lake, stream.name, ["run_stream"]).to_pylist())


def memory_of(settings: Settings) -> int:
    """The memory of all stores of a process by these settings, in MiB."""
    return int(float(settings[MAX_MEMORY_MB]))


def session_conf(settings: Settings) -> dict[str, str]:
    """The settings as a Spark session takes them."""
    return {full_name(name): value for name, value in settings.items()}


def memory_ceiling_mb(machine_bytes: int) -> int:
    """The most that a machine with so much memory can spare, in MiB."""
    return max(FLOOR_MB, machine_bytes // MIB // MACHINE_SHARE)


def machine_memory_bytes() -> int:
    """The memory of this machine, or of the container that this process is in."""
    physical = int(psutil.virtual_memory().total)
    try:
        limit = CGROUP_LIMIT.read_text().strip()
    except OSError:
        return physical  # no container, or another system
    return min(physical, int(limit)) if limit.isdigit() else physical


class Figures(NamedTuple):
    """The measures of a batch, in bytes."""

    written: float
    rewritten: float  # flushed and compacted
    rss: float  # of the run, JVM and Python

    @property
    def rewriting(self) -> float:
        """How often the stores write anew what was written to them."""
        return self.rewritten / max(self.written, 1)


@dataclass(frozen=True, kw_only=True)
class History:
    """All that a decision stands on."""

    stream: Stream
    changes: Sequence[Row]  # of its memory, the newest first
    runs: Sequence[Row]  # of `ops/runs`, of run_stream: a compaction has other settings
    batches: Sequence[Row] = ()  # of `ops/batches`, of the generation
    machine_bytes: int

    @property
    def newest(self) -> str | None:
        """The newest change, of CHANGES: tried, kept or rolled back."""
        return str(self.changes[0]["finding"]) if self.changes else None

    @property
    def runs_since(self) -> Sequence[Row]:
        """Those that began after the change."""
        return [run for run in self.runs if run["started_at"] >= self.changes[0]["found_at"]]

    @property
    def has_failed(self) -> bool:
        """Whether a trial goes on, and a run has failed since it began, whatever the cause."""
        return self.newest == TRIED and "failed" in {run["outcome"] for run in self.runs_since}

    @property
    def settings(self) -> Settings:
        """Of the next run: its memory, as far as the machine has it; by hand over that."""
        memory = max(FLOOR_MB, PER_PARTITION_MB * self.stream.state_partitions)
        if self.changes:
            memory = int(self.changes[0]["limit" if self.has_failed else "figure"]) // MIB
        memory = min(memory, memory_ceiling_mb(self.machine_bytes))
        return {MAX_MEMORY_MB: str(memory), **hand_settings(self.stream)}

    def measured(self, memory_mb: int, since: datetime | None = None) -> Figures | None:
        """The newest batch with data under that memory; None without any."""
        runs = {run["run_id"]: run for run in self.runs}
        found = (
            _figures(row, runs[row["run_id"]])
            for row in sorted(self.batches, key=lambda row: -row["batch_id"])
            # The first batch of all makes the stores.
            if row["memory_mb"] == memory_mb and row["batch_id"] and row["rows_in"]
            if row["run_id"] in runs and (since is None or row["committed_at"] >= since)
        )
        return next(filter(None, found), None)


def _figures(batch: Row, run: Row) -> Figures | None:
    """None when a killed run has left no metrics."""
    try:
        (metrics,) = json.loads(batch["state_metrics"])
        written, *rewritten = (float(metrics[name]) for name in (WRITTEN, FLUSHED, COMPACTED))
    except (KeyError, TypeError, ValueError):
        return None
    rss = (run["jvm_rss_bytes"] or 0) + (run["python_rss_bytes"] or 0)
    return Figures(written, sum(rewritten), rss)


class Outcome(NamedTuple):
    """A decision: the memory of the next run, why, and what changes; None: nothing."""

    memory_mb: int
    why: str
    finding: str | None = None  # of CHANGES
    before_mb: int = 0


def record_change(lake: Lake, stream: Stream, outcome: Outcome) -> None:
    """What the next runs, and the next decision, stand on; nothing when nothing changes."""
    if outcome.finding is not None:
        found = FINDINGS[outcome.finding].found(
            stream.name,
            outcome.why,
            figure=outcome.memory_mb * MIB,
            limit=outcome.before_mb * MIB,
            unit="bytes",
        )
        record_findings(lake, None, stream.name, [found])


def tune_rocksdb(lake: Lake, stream: Stream) -> Outcome:
    """Decide what memory the next run has; SettingsError as `run_settings`."""
    where = {"stream": stream.name, "generation": read_generations(lake, stream.name).number}
    history = History(
        stream=stream,
        changes=changes_of(lake, stream.name),
        runs=_runs(lake, stream),
        batches=read_ops(lake, "batches", where, BATCH_COLUMNS).to_pylist(),
        machine_bytes=machine_memory_bytes(),
    )
    return decide(history)


def decide(history: History) -> Outcome:
    """Judge the trial if there is one, else try a change if the formula asks for one."""
    return _judge(history) if history.newest == TRIED else _propose(history)


def _propose(history: History) -> Outcome:
    stream, memory = history.stream, memory_of(history.settings)
    if MAX_MEMORY_MB in stream.rocksdb or stream.rocksdb.get(BOUNDED) == "false":
        return Outcome(memory, "held by hand")
    measured = history.measured(memory)
    if measured is None:
        return Outcome(memory, "no run with data was measured under it yet")
    if history.newest == ROLLED_BACK and len(history.runs_since) < PATIENCE_RUNS:
        return Outcome(memory, f"a change was rolled back: {PATIENCE_RUNS} runs are to pass")
    ceiling = memory_ceiling_mb(history.machine_bytes)
    wanted = wanted_mb(memory, ceiling, stream.limits.rss_bytes, measured)
    if wanted < LEAST_CHANGE * memory:
        return Outcome(memory, "no change is worth a trial")
    rewritten, written = bytes_text(measured.rewritten), bytes_text(measured.written)
    why = f"a batch flushes and compacts {rewritten}, and writes {written}"
    return Outcome(wanted, why, TRIED, memory)


def wanted_mb(memory_mb: int, ceiling_mb: int, rss_limit: int | None, measured: Figures) -> int:
    """The memory that the stores of a process should have, in MiB:

        memory x (written + rewritten) / written

    as far as the machine, and the stream's limit on a run's memory, have room.
    """
    if measured.rewritten < LEAST_REWRITTEN:
        return memory_mb
    room = math.inf if rss_limit is None else (rss_limit - measured.rss) / MIB
    wanted = min(memory_mb * (1 + measured.rewriting), ceiling_mb, memory_mb + room)
    return max(memory_mb, int(wanted))


def _judge(history: History) -> Outcome:
    trial = history.changes[0]
    memory, back = (int(trial[name]) // MIB for name in ("figure", "limit"))
    after, before = history.measured(memory, since=trial["found_at"]), history.measured(back)
    if history.has_failed:
        why = "a run failed during the trial"
    elif memory_of(history.settings) != memory:
        why = "the stream's settings, or the machine, changed during the trial"
    elif after is None:
        return Outcome(memory, "on trial: no run with data was measured under it yet")
    elif before is None:
        why = "what was measured before it is gone"  # such as in a new generation
    else:
        was, now = before.rewriting, after.rewriting
        why = f"stores rewrite {now:,.2f} of what is written, {was:,.2f} before"
        if now <= MARGIN * was:
            return Outcome(memory, why, RETAINED, back)
    return Outcome(back, why, ROLLED_BACK, memory)
