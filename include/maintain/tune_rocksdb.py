"""Size the memory of a stream's state stores by what its last runs have measured, one change at a time.

Too little memory for what is written shows: a run flushes and compacts, on the local disk, what it
has just written or replayed. The formula is `wanted_mb`. A change is a row of `ops/rocksdb_memory`, and so
is what became of it: the next run with data decides whether it stays, and a run that fails ends it.
Works without a JVM, from the record alone.

Every setting of Spark's RocksDB state store: what we run it with, why, and what hands may set.

Spark takes any name below `spark.sql.streaming.stateStore.rocksdb` without a word, and a
wrong one does nothing. So only names from here are ever set, and a test holds them against
Spark's own. The figures were measured on the project's workloads.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from include.lake.errors import SettingsError
from include.lake.generations import read_generations
from include.lake.ops import append_ops, newest_row, read_ops
from include.lake.paths import Lake
from include.settings import MIB, Stream
from include.spark.conf import STATE_STORE
from include.text_table import bytes_text

MAX_MEMORY_MB, WRITE_BUFFER_RATIO = "maxMemoryUsageMB", "writeBufferCacheRatio"
BOUNDED, HIGH_PRIORITY = "boundedMemoryUsage", "highPriorityPoolRatio"
# What all stores of a process have together, as the first of them had it.
OF_PROCESS = (BOUNDED, MAX_MEMORY_MB, WRITE_BUFFER_RATIO, HIGH_PRIORITY)
NUMBER = re.compile(r"-?\d+(\.\d+)?")  # Python reads more as a number than Spark does
A_NUMBER: tuple[str, ...] = ()
BOOLEAN = ("true", "false")


@dataclass(frozen=True)
class Setting:
    """One setting: Spark's own value, and `ours` where we run with another."""

    name: str  # Spark's short name
    spark: str
    allowed: tuple[str, ...]  # A_NUMBER: any, whose bounds are Spark's to hold
    why: str
    ours: str | None = None
    below: str = f"{STATE_STORE}.rocksdb"

    @property
    def value(self) -> str:
        """What we run with unless the tuner or hands say more."""
        return self.spark if self.ours is None else self.ours

    @property
    def full_name(self) -> str:
        """As a session takes it."""
        return f"{self.below}.{self.name}"


# fmt: off
KNOWN = (
    # --- Memory. The first is tuned; its value is of no stream: the tuner takes it from the machine ---
    Setting(MAX_MEMORY_MB, "500", A_NUMBER, "memory of all stores of a process together: too little, and each run flushes and compacts for nothing what a start replays"),
    Setting(WRITE_BUFFER_RATIO, "0.5", A_NUMBER, "the part of it for what is written: replay fills that, while a batch reads each large value once"),
    # --- Fixed: one value is the best on every workload measured ---
    Setting(BOUNDED, "false", BOOLEAN, "without it a million keys took 204 MB after 20 change logs, and more with each", "true"),
    Setting("changelogCheckpointing.enabled", "false", BOOLEAN, "without it a batch uploads 2 to 3 times the bytes, and flushes all it wrote", "true"),
    Setting("trackTotalNumberOfRows", "true", BOOLEAN, "only to count rows, it doubles the gets, and reads 40 % more bytes", "false"),
    # Any other word is none, silently.
    Setting("compression", "lz4", ("zstd", "lz4", "lz4hc", "snappy", "none"), "snapshots are a third smaller than with lz4; CPU time did not move", "zstd"),
    Setting("minDeltasForSnapshot", "10", A_NUMBER, "with 10, a run flushes its change logs into a snapshot that nobody uploads before it ends (17 MB, 0.9 s); compact_state sets 1", "1000", below=STATE_STORE),
    Setting("compactOnCommit", "false", BOOLEAN, "only worth it with an upload: compact_state sets true"),
    Setting("resetStatsOnLoad", "true", BOOLEAN, "else a batch's counters hold all before, and mislead"),
    # --- Fixed at Spark's value: they moved nothing, or protect ---
    Setting("writeBufferSizeMB", "-1", A_NUMBER, "the limit on memory comes first; with 1 MB, replay took 8 times as long"),
    Setting("maxWriteBufferNumber", "-1", A_NUMBER, "moved nothing"),
    Setting("blockSizeKB", "4", A_NUMBER, "moved nothing: a value is larger than a block"),
    Setting("blockCacheSizeMB", "8", A_NUMBER, "moved nothing, whether memory is bounded or not"),
    Setting(HIGH_PRIORITY, "0.1", A_NUMBER, "few large values have few index blocks"),
    Setting("maxOpenFiles", "-1", A_NUMBER, "a compacted store has one file"),
    Setting("allowFAllocate", "true", BOOLEAN, "moved nothing"),
    Setting("verifyNonEmptyFilesInZip", "true", BOOLEAN, "protects snapshots, and cost nothing"),
    Setting("checkStaleReusedFilesInSnapshot", "true", BOOLEAN, "protects snapshots from a clean-up elsewhere"),
    Setting("lockAcquireTimeoutMs", "120000", A_NUMBER, "a lease keeps others away"),
    Setting("memoryUpdateIntervalMs", "1000", A_NUMBER, "no figure of a batch depends on it"),
)
# fmt: on
SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in KNOWN}

# What the first run writes into the checkpoint. Spark overrides a later value silently.
PINNED: Mapping[str, str] = {
    "formatVersion": "the format of the store's files",
    "mergeOperatorVersion": "how lists are stored",
    "providerClass": "the kind of state store",
    "compression.codec": "how change logs are compressed",
    "partitions": "the number of state partitions: `state_partitions` of the stream",
    "encodingFormat": "how rows are stored",
    "rowChecksum.enabled": "whether rows have checksums",
}


def hand_settings(stream: Stream) -> Mapping[str, str]:
    """The stream's `rocksdb`; SettingsError names the setting that is wrong, and what may be."""
    for name, value in stream.rocksdb.items():
        if problem := _why_not(name, value):
            raise SettingsError(f"stream {stream.name}: {problem}", subject=name)
    return stream.rocksdb


def _why_not(name: str, value: str) -> str | None:
    """Why a setting cannot be held by hand."""
    if name in PINNED:
        return (
            f"rocksdb setting {name} cannot be set: it is {PINNED[name]}, "
            "which the first run writes into the checkpoint, and Spark ignores another later"
        )
    if name not in SETTINGS:
        near = get_close_matches(name, SETTINGS, n=1, cutoff=0.7)
        hint = f"did you mean {near[0]}? " if near else ""
        return f"unknown rocksdb setting {name!r}: {hint}known are {', '.join(sorted(SETTINGS))}"
    allowed = SETTINGS[name].allowed
    if isinstance(value, str) and (value in allowed if allowed else NUMBER.fullmatch(value)):
        return None
    said = " or ".join(allowed) or "a number"
    return f"rocksdb setting {name} must be {said}, as text, not {value!r}"


PER_PARTITION_MB = 64
FLOOR_MB = 64
# Two jobs may run at once, each with a heap and with Python workers beside it.
MACHINE_SHARE = 8
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
LEAST_REWRITTEN = 1 * MIB  # a batch that flushes and compacts less has memory enough
LEAST_CHANGE = 1.25  # a smaller change of the memory is not worth a trial
LESS = 0.75  # of what the stores hold, at most so much stays when a run is above its limit
MARGIN = 0.8  # a change stays if its figure is this part of what it was, or less
PATIENCE_RUNS = 20  # that pass after a change was rolled back
WRITTEN, FLUSHED, COMPACTED = (
    "rocksdbTotalBytesWritten",
    "rocksdbTotalBytesWrittenByFlush",
    "rocksdbTotalBytesWrittenByCompaction",
)
TABLE = "rocksdb_memory"
TRIED, KEPT, ROLLED_BACK = "tried", "kept", "rolled_back"
BATCH_COLUMNS = (
    *("batch_id", "run_id", "committed_at", "memory_mb"),
    *("rows_in", "state_bytes", "state_metrics"),
)
Settings = Mapping[str, str]  # by Spark's short names
Row = Mapping[str, Any]


class Change(NamedTuple):
    """The newest row on the memory of a stream's stores, in MiB."""

    change: str  # TRIED, KEPT or ROLLED_BACK
    memory_mb: int  # from then on
    before_mb: int
    at: datetime


def newest_change(lake: Lake, stream: Stream) -> Change | None:
    """None as long as nothing was tried."""
    row = newest_row(read_ops(lake, TABLE, {"stream": stream.name}, Change._fields), "at")
    return None if row is None else Change(**{name: row[name] for name in Change._fields})


def record_change(lake: Lake, stream: Stream, outcome: "Outcome") -> None:
    """What the next runs, and the next decision, stand on; nothing when nothing changes."""
    if outcome.change is not None:
        append_ops(
            lake, TABLE, [{"stream": stream.name, "at": datetime.now(UTC), **outcome._asdict()}]
        )


def run_settings(lake: Lake, stream: Stream) -> Settings:
    """The settings of a run that starts now.

    SettingsError when the stream's entry holds a setting that is unknown or out of range.
    """
    change = newest_change(lake, stream)
    runs = _runs(lake, stream) if change is not None and change.change == TRIED else []
    return History(
        stream=stream, change=change, runs=runs, machine_bytes=machine_memory_bytes()
    ).settings


def memory_of(settings: Settings) -> int:
    """The memory of all stores of a process by these settings, in MiB."""
    return int(float(settings[MAX_MEMORY_MB]))


def session_conf(settings: Settings) -> dict[str, str]:
    """The settings as a Spark session takes them."""
    return {SETTINGS[name].full_name: value for name, value in settings.items()}


def memory_limit_mb(machine_bytes: int, partitions: int) -> int:
    """The first limit for a stream with so many state partitions, in MiB."""
    return max(FLOOR_MB, min(PER_PARTITION_MB * partitions, memory_ceiling_mb(machine_bytes)))


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


def _runs(lake: Lake, stream: Stream) -> list[Row]:
    where = {"subject": stream.name, "job": "run_stream"}
    return list(read_ops(lake, "runs", where).to_pylist())


class Figures(NamedTuple):
    """What a batch has measured."""

    written: float
    rewritten: float  # flushed and compacted
    store_memory: float
    rss: float  # of the run, JVM and Python

    @property
    def rewriting(self) -> float:
        """How often the stores write anew what was written to them."""
        return self.rewritten / max(self.written, 1)


@dataclass(frozen=True, kw_only=True)
class History:
    """All that a decision stands on."""

    stream: Stream
    change: Change | None
    runs: Sequence[Row]  # of `ops/runs`, of run_stream: those of a compaction have other settings
    batches: Sequence[Row] = ()  # of `ops/batches`, of the generation
    machine_bytes: int

    @property
    def has_failed(self) -> bool:
        """Whether a trial goes on, and a run has failed since it began, whatever the cause."""
        change = self.change
        return change is not None and any(
            run["outcome"] == "failed" and run["started_at"] >= change.at
            for run in self.runs
            if change.change == TRIED
        )

    @property
    def settings(self) -> Settings:
        """Of the next run: its memory, as far as the machine has it, over ours; by hand over both."""
        if self.change is None:
            memory = memory_limit_mb(self.machine_bytes, self.stream.state_partitions)
        else:
            memory = self.change.before_mb if self.has_failed else self.change.memory_mb
        memory = min(memory, memory_ceiling_mb(self.machine_bytes))
        ours = {name: setting.value for name, setting in SETTINGS.items()}
        return ours | {MAX_MEMORY_MB: str(memory)} | dict(hand_settings(self.stream))

    @property
    def memory_mb(self) -> int:
        return memory_of(self.settings)

    def measured(self, memory_mb: int, is_before: bool = False) -> Figures | None:
        """The newest batch with data under that memory since the change, or before it; None without any."""
        runs = {run["run_id"]: run for run in self.runs}
        found = (
            _figures(row, runs[row["run_id"]])
            for row in sorted(self.batches, key=lambda row: -row["batch_id"])
            # The first batch of all makes the stores.
            if row["memory_mb"] == memory_mb and row["batch_id"] and row["rows_in"]
            if row["run_id"] in runs and self._is_before(row) == is_before
        )
        return next(filter(None, found), None)

    def _is_before(self, batch: Row) -> bool:
        return self.change is not None and batch["committed_at"] < self.change.at


def _figures(batch: Row, run: Row) -> Figures | None:
    """None when a killed run has left no metrics."""
    try:
        (metrics,) = json.loads(batch["state_metrics"])
        written, flushed, compacted = (
            float(metrics[name]) for name in (WRITTEN, FLUSHED, COMPACTED)
        )
    except (KeyError, TypeError, ValueError):
        return None
    rss = (run["jvm_rss_bytes"] or 0) + (run["python_rss_bytes"] or 0)
    return Figures(written, flushed + compacted, batch["state_bytes"] or 0, rss)


class Outcome(NamedTuple):
    """A decision: the memory of the next run, why, and what changes; None: nothing."""

    memory_mb: int
    why: str
    change: str | None = None
    before_mb: int | None = None


def tune_rocksdb(lake: Lake, stream: Stream) -> Outcome:
    """Decide what memory the next run has. SettingsError when the stream's entry holds an impossible setting."""
    generation = read_generations(lake, stream.name).number
    where = {"stream": stream.name, "generation": generation}
    history = History(
        stream=stream,
        change=newest_change(lake, stream),
        runs=_runs(lake, stream),
        batches=read_ops(lake, "batches", where, BATCH_COLUMNS).to_pylist(),
        machine_bytes=machine_memory_bytes(),
    )
    return decide(history)


def decide(history: History) -> Outcome:
    """Judge the trial if there is one, else try a change if the formula asks for one."""
    change = history.change
    if change is not None and change.change == TRIED:
        return _judge(history, change)
    return _propose(history)


def _propose(history: History) -> Outcome:
    memory, stream = history.memory_mb, history.stream
    if MAX_MEMORY_MB in stream.rocksdb or history.settings[BOUNDED] != "true":
        return Outcome(memory, "held by hand")
    measured = history.measured(memory)
    if measured is None:
        return Outcome(memory, "no run with data was measured under it yet")
    if _runs_since_rolled_back(history) < PATIENCE_RUNS:
        return Outcome(memory, f"a change was rolled back: {PATIENCE_RUNS} runs are to pass")
    ceiling = memory_ceiling_mb(history.machine_bytes)
    wanted = wanted_mb(memory, ceiling, stream.limits.rss_bytes, measured)
    if max(wanted, memory) < LEAST_CHANGE * min(wanted, memory):
        return Outcome(memory, "no change is worth a trial")
    return Outcome(wanted, _why(measured, is_more=wanted > memory), TRIED, memory)


def _why(measured: Figures, is_more: bool) -> str:
    if is_more:
        rewritten, written = bytes_text(measured.rewritten), bytes_text(measured.written)
        return f"a batch flushes and compacts {rewritten}, and writes {written}"
    rss, stores = bytes_text(measured.rss), bytes_text(measured.store_memory)
    return f"a run holds {rss}, above the stream's limit, {stores} of it in the state stores"


def _runs_since_rolled_back(history: History) -> float:
    at = history.change.at if history.change and history.change.change == ROLLED_BACK else None
    return math.inf if at is None else sum(bool(run["started_at"] >= at) for run in history.runs)


def wanted_mb(memory_mb: int, ceiling_mb: int, rss_limit: int | None, measured: Figures) -> int:
    """The memory that the stores of a process should have, in MiB:

        memory x (written + rewritten) / written

    as far as the machine, and the stream's limit on a run's memory, have room. Of a run above that
    limit the stores give back what is over it, and a quarter at least, if they hold so much.
    """
    room = math.inf if rss_limit is None else (rss_limit - measured.rss) / MIB
    if room < 0:
        held = measured.store_memory / MIB
        if held + room < FLOOR_MB:
            return memory_mb
        return min(memory_mb, max(FLOOR_MB, int(min(held + room, LESS * held))))
    if measured.rewritten < LEAST_REWRITTEN:
        return memory_mb
    most = min(ceiling_mb, memory_mb + room)
    return max(memory_mb, int(min(memory_mb * (1 + measured.rewriting), most)))


def _judge(history: History, change: Change) -> Outcome:
    memory, back = change.memory_mb, change.before_mb
    if history.has_failed:
        return Outcome(back, "a run failed during the trial", ROLLED_BACK, memory)
    if history.memory_mb != memory:
        why = "the stream's settings, or the machine, changed during the trial"
        return Outcome(back, why, ROLLED_BACK, memory)
    after, before = history.measured(memory), history.measured(back, is_before=True)
    if after is None:
        return Outcome(memory, "on trial: no run with data was measured under it yet")
    if before is None:  # such as in a new generation
        return Outcome(back, "what was measured before it is gone", ROLLED_BACK, memory)
    figure = "rewriting" if memory > back else "store_memory"
    was, now = getattr(before, figure), getattr(after, figure)
    said = f"{figure} {was:,.2f} before and {now:,.2f} with the change, which is to be at most {MARGIN} of it"
    if now <= MARGIN * was:
        return Outcome(memory, said, KEPT, back)
    return Outcome(back, said, ROLLED_BACK, memory)
