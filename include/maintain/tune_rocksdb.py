"""Size the memory of a stream's state stores by what its runs have measured, one change at a time.

Stores with too little memory flush and compact, on the local disk, what they have just written or
replayed. The formula is `wanted_mb`. The next run with data decides if a change stays, and a run that
fails ends the trial. The newest change is in `checkpoints/<stream>/memory.json`; each is a finding.

For the other settings one value was the best on every workload measured (`include/spark/conf.py`);
a stream may set any by hand. Spark silently ignores wrong names below
`spark.sql.streaming.stateStore.rocksdb`: so only names from here are set, which a test compares with
Spark's own.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from include.catalogue import FINDINGS
from include.fold.admission import micros_of
from include.lake.errors import SettingsError
from include.lake.generations import read_generations
from include.lake.ops import read_ops, record_findings, runs_of
from include.lake.paths import Lake
from include.settings import MIB, Stream
from include.spark.conf import STATE_STORE
from include.text_table import bytes_text, did_you_mean

MAX_MEMORY_MB, BOUNDED = "maxMemoryUsageMB", "boundedMemoryUsage"
# All stores of a process share these, with the values of the first one.
OF_PROCESS = (BOUNDED, MAX_MEMORY_MB, "writeBufferCacheRatio", "highPriorityPoolRatio")
# Settings that a stream may set by hand; Spark refuses wrong values.
BY_HAND = (
    *(MAX_MEMORY_MB, "writeBufferCacheRatio", "highPriorityPoolRatio", "writeBufferSizeMB"),
    *("maxWriteBufferNumber", "blockSizeKB", "blockCacheSizeMB", "maxOpenFiles"),
    *("lockAcquireTimeoutMs", "memoryUpdateIntervalMs", "minDeltasForSnapshot", BOUNDED),
    *("changelogCheckpointing.enabled", "trackTotalNumberOfRows", "compactOnCommit"),
    *("resetStatsOnLoad", "allowFAllocate", "verifyNonEmptyFilesInZip", "compression"),
    "checkStaleReusedFilesInSnapshot",
)
PER_PARTITION_MB = FLOOR_MB = 64
# The stores get an eighth of the machine: two jobs may run at once, each with a heap and Python workers.
MACHINE_SHARE = 8
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
LEAST_REWRITTEN = 1 * MIB  # a batch that flushes and compacts less has memory enough
LEAST_CHANGE = 1.25  # a smaller factor is not worth a trial
MARGIN = 0.8  # a change stays if stores rewrite at most this part of what they did
PATIENCE_RUNS = 20  # between a rollback and the next trial
WRITTEN = "rocksdbTotalBytesWritten"
FLUSHED, COMPACTED = f"{WRITTEN}ByFlush", f"{WRITTEN}ByCompaction"
TRIED, RETAINED, ROLLED_BACK = "memory_tried", "memory_kept", "memory_rolled_back"
BATCH_COLUMNS = ("batch_id", "run_id", "committed_at", "memory_mb", "rows_in", "state_metrics")
Settings = Mapping[str, str]  # by Spark's short names
Row = Mapping[str, Any]


def hand_settings(stream: Stream) -> Settings:
    """The stream's `rocksdb`; SettingsError names the setting that is wrong.

    Settings that the first run writes into the checkpoint are refused: Spark ignores later values.
    """
    for name in stream.rocksdb.keys() - set(BY_HAND):
        said = f"stream {stream.name}: rocksdb setting {name!r} cannot be set"
        raise SettingsError(f"{said}{did_you_mean(name, BY_HAND)}", subject=name)
    return stream.rocksdb


def full_name(name: str) -> str:
    """The name of a setting in a Spark session."""
    of_rocksdb = "" if name == "minDeltasForSnapshot" else "rocksdb."
    return f"{STATE_STORE}.{of_rocksdb}{name}"


class Outcome(NamedTuple):
    """A decision: the memory of the next run, and why; with a finding it is a change."""

    memory_mb: int
    why: str
    finding: str | None = None  # memory_tried, memory_kept or memory_rolled_back
    before_mb: int = 0
    made_us: int = 0


def _memory_file(lake: Lake, stream: str) -> str:
    return f"{lake.root}/checkpoints/{stream}/memory.json"


def newest_change(lake: Lake, stream: str) -> Outcome | None:
    """The newest change of a stream's memory; None without any, and when the file is damaged."""
    try:
        return Outcome(*json.loads(lake.read(_memory_file(lake, stream))))
    except (FileNotFoundError, TypeError, ValueError):
        return None


def run_settings(lake: Lake, stream: Stream) -> Settings:
    """The memory of a run that starts now, and the settings made by hand.

    Raises SettingsError when the stream's file has an unknown setting.
    """
    change, machine = newest_change(lake, stream.name), machine_memory_bytes()
    runs = _runs(lake, stream) if change is not None and change.finding == TRIED else ()
    return History(stream=stream, change=change, runs=runs, machine_bytes=machine).settings


def _runs(lake: Lake, stream: Stream) -> Sequence[Row]:
    return list(runs_of(lake, stream.name, ["run_stream"]).to_pylist())


def memory_of(settings: Settings) -> int:
    """The memory of all stores of a process by these settings, in MiB."""
    return int(float(settings[MAX_MEMORY_MB]))


def session_conf(settings: Settings) -> dict[str, str]:
    """The settings by their names in a Spark session."""
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
        """The bytes that the stores rewrite for each one written to them."""
        return self.rewritten / max(self.written, 1)


@dataclass(frozen=True, kw_only=True)
class History:
    """The runs of a stream, and the newest change of its memory: all that a decision needs."""

    stream: Stream
    change: Outcome | None
    runs: Sequence[Row]  # of `ops/runs`, of run_stream: a compaction has other settings
    batches: Sequence[Row] = ()  # of `ops/batches`, of the generation
    machine_bytes: int

    @property
    def is_trial(self) -> bool:
        """True if the newest change is on trial."""
        return self.change is not None and self.change.finding == TRIED

    @property
    def runs_since(self) -> Sequence[Row]:
        """The runs that began after the newest change."""
        since_us = 0 if self.change is None else self.change.made_us
        return [run for run in self.runs if micros_of(run["started_at"]) >= since_us]

    @property
    def has_failed(self) -> bool:
        """True if a run has failed since the trial began, whatever the cause."""
        return self.is_trial and "failed" in {run["outcome"] for run in self.runs_since}

    @property
    def settings(self) -> Settings:
        """The settings of the next run: its memory, at most the machine's share; by hand before that."""
        memory = max(FLOOR_MB, PER_PARTITION_MB * self.stream.state_partitions)
        if self.change is not None:
            memory = self.change.before_mb if self.has_failed else self.change.memory_mb
        memory = min(memory, memory_ceiling_mb(self.machine_bytes))
        return {MAX_MEMORY_MB: str(memory), **hand_settings(self.stream)}

    def measured(self, memory_mb: int, since_us: int = 0) -> Figures | None:
        """The figures of the newest batch with data under that memory; None without any."""
        runs = {run["run_id"]: run for run in self.runs}
        found = (
            _figures(row, runs[row["run_id"]])
            for row in sorted(self.batches, key=lambda row: -row["batch_id"])
            # Batch 0 makes the stores.
            if row["memory_mb"] == memory_mb and row["batch_id"] and row["rows_in"]
            if row["run_id"] in runs and micros_of(row["committed_at"]) >= since_us
        )
        return next(filter(None, found), None)


def _figures(batch: Row, run: Row) -> Figures | None:
    """The figures of a batch; None when a killed run has left no metrics."""
    try:
        (metrics,) = json.loads(batch["state_metrics"])
        written, *rewritten = (float(metrics[name]) for name in (WRITTEN, FLUSHED, COMPACTED))
    except (KeyError, TypeError, ValueError):
        return None
    rss = (run["jvm_rss_bytes"] or 0) + (run["python_rss_bytes"] or 0)
    return Figures(written, sum(rewritten), rss)


def record_change(lake: Lake, stream: Stream, outcome: Outcome) -> None:
    """Write the change for the next runs, if there is one, and record it as a finding."""
    if outcome.finding is not None:
        change = outcome._replace(made_us=micros_of(datetime.now(UTC)))
        lake.write(_memory_file(lake, stream.name), json.dumps(change).encode())
        found = FINDINGS[outcome.finding].found(
            stream.name,
            outcome.why,
            figure=outcome.memory_mb * MIB,
            limit=outcome.before_mb * MIB,
            unit="bytes",
        )
        record_findings(lake, None, stream.name, [found])


def tune_rocksdb(lake: Lake, stream: Stream) -> Outcome:
    """Decide on the memory of the next run; SettingsError as `run_settings`."""
    where = {"stream": stream.name, "generation": read_generations(lake, stream.name).number}
    history = History(
        stream=stream,
        change=newest_change(lake, stream.name),
        runs=_runs(lake, stream),
        batches=read_ops(lake, "batches", where, BATCH_COLUMNS).to_pylist(),
        machine_bytes=machine_memory_bytes(),
    )
    return decide(history)


def decide(history: History) -> Outcome:
    """Judge the trial if there is one, else try a change if the formula asks for one."""
    if history.change is not None and history.is_trial:
        return _judge(history, history.change)
    return _propose(history)


def _propose(history: History) -> Outcome:
    stream, memory = history.stream, memory_of(history.settings)
    if MAX_MEMORY_MB in stream.rocksdb or stream.rocksdb.get(BOUNDED) == "false":
        return Outcome(memory, "set by hand")
    measured = history.measured(memory)
    if measured is None:
        return Outcome(memory, "no run with data was measured under it yet")
    is_rolled_back = history.change is not None and history.change.finding == ROLLED_BACK
    if is_rolled_back and len(history.runs_since) < PATIENCE_RUNS:
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

    at most what the machine, and the stream's limit on a run's memory, leave room for.
    """
    if measured.rewritten < LEAST_REWRITTEN:
        return memory_mb
    room = math.inf if rss_limit is None else (rss_limit - measured.rss) / MIB
    wanted = min(memory_mb * (1 + measured.rewriting), ceiling_mb, memory_mb + room)
    return max(memory_mb, int(wanted))


def _judge(history: History, trial: Outcome) -> Outcome:
    memory, back = trial.memory_mb, trial.before_mb
    after, before = history.measured(memory, since_us=trial.made_us), history.measured(back)
    if history.has_failed:
        why = "a run failed during the trial"
    elif memory_of(history.settings) != memory:
        why = "the stream's settings, or the machine, changed during the trial"
    elif after is None:
        return Outcome(memory, "on trial: no run with data was measured under it yet")
    elif before is None:
        why = "the figures before it are gone"  # as in a new generation
    else:
        was, now = before.rewriting, after.rewriting
        why = f"stores rewrite {now:,.2f} of what is written, {was:,.2f} before"
        if now <= MARGIN * was:
            return Outcome(memory, why, RETAINED, back)
    return Outcome(back, why, ROLLED_BACK, memory)
