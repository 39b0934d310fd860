"""Size the memory of a stream's state stores by what its last runs have measured, one change at a time.

Too little memory for what is written shows: a run flushes and compacts, on the local disk, what it
has just written or replayed. The formula is `wanted_mb`. A change is a finding, and so is what became of it:
the next run with data decides whether it stays, and a run that fails ends it. Works without a JVM, from
the `ops` tables alone.

Of the other settings one value was the best on every workload measured (`include/spark/conf.py`); hands may
hold any that Spark knows. Spark takes any name below `spark.sql.streaming.stateStore.rocksdb` without a
word, and a wrong one does nothing: so only names from here are ever set, and a test holds them against Spark's own.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow.compute as pc

from include.catalogue import FINDINGS
from include.lake.errors import SettingsError
from include.lake.findings import record_findings
from include.lake.generations import read_generations
from include.lake.ops import read_ops, runs_of
from include.lake.paths import Lake
from include.settings import MIB, Stream
from include.spark.conf import STATE_STORE
from include.text_table import bytes_text, did_you_mean

MAX_MEMORY_MB, BOUNDED = "maxMemoryUsageMB", "boundedMemoryUsage"
# What all stores of a process have together, as the first of them had it.
OF_PROCESS = (BOUNDED, MAX_MEMORY_MB, "writeBufferCacheRatio", "highPriorityPoolRatio")
NUMBER = r"-?\d+(\.\d+)?"  # Python reads more as a number than Spark does
BOOLEAN = "true|false"
# What hands may hold, and how Spark reads it; bounds of numbers are Spark's to hold.
BY_HAND: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *(MAX_MEMORY_MB, "writeBufferCacheRatio", "highPriorityPoolRatio"),
            *("writeBufferSizeMB", "maxWriteBufferNumber", "blockSizeKB", "blockCacheSizeMB"),
            *("maxOpenFiles", "lockAcquireTimeoutMs", "memoryUpdateIntervalMs"),
            "minDeltasForSnapshot",
        ),
        NUMBER,
    ),
    **dict.fromkeys(
        (
            *(BOUNDED, "changelogCheckpointing.enabled", "trackTotalNumberOfRows"),
            *("compactOnCommit", "resetStatsOnLoad", "allowFAllocate"),
            *("verifyNonEmptyFilesInZip", "checkStaleReusedFilesInSnapshot"),
        ),
        BOOLEAN,
    ),
    "compression": "zstd|lz4|lz4hc|snappy|none",  # any other word is none, silently
}


def hand_settings(stream: Stream) -> Mapping[str, str]:
    """The stream's `rocksdb`; SettingsError names the setting that is wrong, and what may be.

    So it is for those that the first run writes into the checkpoint: Spark ignores another value later.
    """
    for name, value in stream.rocksdb.items():
        if name not in BY_HAND:
            wrong = f"rocksdb setting {name!r} cannot be set{did_you_mean(name, BY_HAND)}"
        elif not (isinstance(value, str) and re.fullmatch(BY_HAND[name], value)):
            allowed = "a number" if BY_HAND[name] == NUMBER else BY_HAND[name].replace("|", " or ")
            wrong = f"rocksdb setting {name} must be {allowed}, as text, not {value!r}"
        else:
            continue
        raise SettingsError(f"stream {stream.name}: {wrong}", subject=name)
    return stream.rocksdb


def full_name(name: str) -> str:
    """A setting as a session takes it."""
    return (
        f"{STATE_STORE}.{name}"
        if name == "minDeltasForSnapshot"
        else f"{STATE_STORE}.rocksdb.{name}"
    )


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
OF_MEMORY = (
    FINDINGS["memory_tried"],
    FINDINGS["memory_kept"],
    FINDINGS["memory_rolled_back"],
)
TRIED, KEPT, ROLLED_BACK = CHANGES = [figure.finding for figure in OF_MEMORY]
BATCH_COLUMNS = (
    *("batch_id", "run_id", "committed_at", "memory_mb"),
    *("rows_in", "state_bytes", "state_metrics"),
)
Settings = Mapping[str, str]  # by Spark's short names
Row = Mapping[str, Any]


class Change(NamedTuple):
    """A change of the memory of a stream's stores, in MiB."""

    finding: str  # of CHANGES
    memory_mb: int  # from then on
    before_mb: int
    at: datetime


def changes_of(lake: Lake, stream: str) -> list[Row]:
    """The findings on changes of a stream's memory, the newest first."""
    of_memory = pc.field("finding").isin(CHANGES)
    rows = read_ops(lake, "findings", {"subject": stream}, wanted=of_memory)
    return rows.sort_by([("found_at", "descending")]).to_pylist()  # type: ignore[no-any-return]


def newest_change(lake: Lake, stream: Stream) -> Change | None:
    """None as long as nothing was tried."""
    for row in changes_of(lake, stream.name):
        memory_mb, before_mb = (int(row[name] / MIB) for name in ("figure", "limit"))
        return Change(row["finding"], memory_mb, before_mb, row["found_at"])
    return None


def record_change(lake: Lake, stream: Stream, outcome: "Outcome") -> None:
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


def run_settings(lake: Lake, stream: Stream) -> Settings:
    """The memory of a run that starts now, and what is held by hand.

    SettingsError when the stream's entry holds a setting that is unknown or out of range.
    """
    change = newest_change(lake, stream)
    runs = _runs(lake, stream) if change is not None and change.finding == TRIED else []
    history = History(stream=stream, change=change, runs=runs, machine_bytes=machine_memory_bytes())
    return history.settings


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


def _runs(lake: Lake, stream: Stream) -> list[Row]:
    return list(runs_of(lake, stream.name, ["run_stream"]).to_pylist())


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
    change: Change | None  # the newest
    runs: Sequence[Row]  # of `ops/runs`, of run_stream: those of a compaction have other settings
    batches: Sequence[Row] = ()  # of `ops/batches`, of the generation
    machine_bytes: int

    @property
    def trial(self) -> Change | None:
        """The change that is on trial."""
        change = self.change
        return None if change is None or change.finding != TRIED else change

    @property
    def runs_since(self) -> Sequence[Row]:
        """Those that began after the change."""
        change = self.change
        return [run for run in self.runs if change is None or run["started_at"] >= change.at]

    @property
    def has_failed(self) -> bool:
        """Whether a trial goes on, and a run has failed since it began, whatever the cause."""
        outcomes = {run["outcome"] for run in self.runs_since}
        return self.trial is not None and "failed" in outcomes

    @property
    def settings(self) -> Settings:
        """Of the next run: its memory, as far as the machine has it; by hand over that."""
        ceiling = memory_ceiling_mb(self.machine_bytes)
        if self.change is None:
            memory = max(FLOOR_MB, PER_PARTITION_MB * self.stream.state_partitions)
        else:
            memory = self.change.before_mb if self.has_failed else self.change.memory_mb
        return {MAX_MEMORY_MB: str(min(memory, ceiling)), **hand_settings(self.stream)}

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
    finding: str | None = None  # of CHANGES
    before_mb: int = 0


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
    return _propose(history) if history.trial is None else _judge(history, history.trial)


def _propose(history: History) -> Outcome:
    memory, stream, change = history.memory_mb, history.stream, history.change
    if MAX_MEMORY_MB in stream.rocksdb or stream.rocksdb.get(BOUNDED) == "false":
        return Outcome(memory, "held by hand")
    measured = history.measured(memory)
    if measured is None:
        return Outcome(memory, "no run with data was measured under it yet")
    is_rolled_back = change is not None and change.finding == ROLLED_BACK
    if is_rolled_back and len(history.runs_since) < PATIENCE_RUNS:
        return Outcome(memory, f"a change was rolled back: {PATIENCE_RUNS} runs are to pass")
    ceiling = memory_ceiling_mb(history.machine_bytes)
    wanted = wanted_mb(memory, ceiling, stream.limits.rss_bytes, measured)
    if max(wanted, memory) < LEAST_CHANGE * min(wanted, memory):
        return Outcome(memory, "no change is worth a trial")
    figures = {name: bytes_text(value) for name, value in measured._asdict().items()}
    why = "a batch flushes and compacts {rewritten}, and writes {written}"
    if wanted < memory:
        why = (
            "a run holds {rss}, above the stream's limit, {store_memory} of it in the state stores"
        )
    return Outcome(wanted, why.format(**figures), TRIED, memory)


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


def _judge(history: History, trial: Change) -> Outcome:
    memory, back = trial.memory_mb, trial.before_mb
    figure = "rewriting" if memory > back else "store_memory"
    after, before = history.measured(memory), history.measured(back, is_before=True)
    if history.has_failed:
        why = "a run failed during the trial"
    elif history.memory_mb != memory:
        why = "the stream's settings, or the machine, changed during the trial"
    elif after is None:
        return Outcome(memory, "on trial: no run with data was measured under it yet")
    elif before is None:
        why = "what was measured before it is gone"  # such as in a new generation
    else:
        was, now = getattr(before, figure), getattr(after, figure)
        why = f"{figure} {was:,.2f} before and {now:,.2f} with the change, which is to be at most {MARGIN} of it"
        if now <= MARGIN * was:
            return Outcome(memory, why, KEPT, back)
    return Outcome(back, why, ROLLED_BACK, memory)
