"""Every setting of Spark's RocksDB state store: what we run it with, why, and what hands may set.

Spark takes any name below `spark.sql.streaming.stateStore.rocksdb` without a word, and a
wrong one does nothing. So only names from here are ever set, and a test holds them against
Spark's own. The figures were measured on the project's workloads.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from include.settings import SettingsError, Stream
from include.spark.conf import STATE_STORE

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
