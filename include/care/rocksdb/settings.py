"""Every setting of Spark's RocksDB state store: what we run it with, and why.

Spark takes any name below `spark.sql.streaming.stateStore.rocksdb` without a word, and a
wrong one does nothing. So only names from here are ever set, and a test holds them against
Spark's own. The figures are from tests/benchmarks/sensitivity.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from include.care.rocksdb.values import BOOLEAN, Choice, Range
from include.spark.conf import STATE_STORE

ROCKSDB = f"{STATE_STORE}.rocksdb"
MAX_MEMORY_MB, WRITE_BUFFER_RATIO = "maxMemoryUsageMB", "writeBufferCacheRatio"
TUNED = (MAX_MEMORY_MB, WRITE_BUFFER_RATIO)
BOUNDED, HIGH_PRIORITY = "boundedMemoryUsage", "highPriorityPoolRatio"
# Spark refuses 1 for the two ratios together, when a store opens; and blocks need some.
RATIOS_TOGETHER = 0.9
WRITE_BUFFER_RATIO_CEILING = 0.8


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of the state store. `value` is what we run with unless a profile says more."""

    name: str  # Spark's short name
    spark: str  # Spark's own value
    value: str
    allowed: Choice | Range
    why: str
    below: str = ROCKSDB

    @property
    def full_name(self) -> str:
        """As a session takes it."""
        return f"{self.below}.{self.name}"


SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        # --- Memory: the two that are tuned ---
        Setting(
            name=MAX_MEMORY_MB,
            spark="500",
            value="500",  # of no stream: `profiles` takes it from the machine
            allowed=Range(floor=16, ceiling=1_000_000),
            why="memory of all stores of a process together. Too little, and what a start "
            "replays is flushed and compacted in every run, for nothing",
        ),
        Setting(
            name=WRITE_BUFFER_RATIO,
            spark="0.5",
            value="0.5",
            allowed=Range(floor=0.1, ceiling=WRITE_BUFFER_RATIO_CEILING, whole=False),
            why="the part of it for what is written: replay fills that, while a batch reads "
            "each of our large values once, so that a cache of blocks is of little use",
        ),
        # --- Fixed: one value is the best on every workload measured ---
        Setting(
            name=BOUNDED,
            spark="false",
            value="true",
            allowed=BOOLEAN,
            why="without it a million keys took 204 MB after 20 change logs, and more with each",
        ),
        Setting(
            name="changelogCheckpointing.enabled",
            spark="false",
            value="true",
            allowed=BOOLEAN,
            why="without it a batch uploads 2 to 3 times the bytes, and flushes all it wrote",
        ),
        Setting(
            name="trackTotalNumberOfRows",
            spark="true",
            value="false",
            allowed=BOOLEAN,
            why="only to count rows, it doubles the gets, and reads 40 % more bytes",
        ),
        Setting(
            name="compression",
            spark="lz4",
            value="zstd",
            # Any other word is none, silently.
            allowed=Choice(("zstd", "lz4", "lz4hc", "snappy", "none")),
            why="snapshots are a third smaller than with lz4; CPU time did not move",
        ),
        Setting(
            name="minDeltasForSnapshot",
            spark="10",
            value="1000",
            allowed=Range(floor=1, ceiling=1_000_000),
            below=STATE_STORE,
            why="with 10, a run flushes all its change logs into a snapshot that nobody uploads "
            "before it ends (17 MB, 0.9 s); compact_state sets 1, and uploads it",
        ),
        Setting(
            name="compactOnCommit",
            spark="false",
            value="false",
            allowed=BOOLEAN,
            why="only a snapshot that is uploaded is worth compacting: compact_state sets true",
        ),
        Setting(
            name="resetStatsOnLoad",
            spark="true",
            value="true",
            allowed=BOOLEAN,
            why="else the counters of a batch hold those of all before it, and mislead the tuner",
        ),
        # --- Fixed at Spark's value: they moved nothing, or protect ---
        Setting(
            name="writeBufferSizeMB",
            spark="-1",
            value="-1",
            allowed=Range(floor=1, ceiling=4_096, or_minus_one=True),
            why="the limit on memory comes first; with 1 MB, replay took 8 times as long",
        ),
        Setting(
            name="maxWriteBufferNumber",
            spark="-1",
            value="-1",
            allowed=Range(floor=1, ceiling=64, or_minus_one=True),
            why="moved nothing",
        ),
        Setting(
            name="blockSizeKB",
            spark="4",
            value="4",
            allowed=Range(floor=1, ceiling=4_096),
            why="moved nothing: one of our values is larger than a block",
        ),
        Setting(
            name="blockCacheSizeMB",
            spark="8",
            value="8",
            allowed=Range(floor=1, ceiling=65_536),
            why="without effect while memory is bounded; moved nothing when it was not",
        ),
        Setting(
            name=HIGH_PRIORITY,
            spark="0.1",
            value="0.1",
            allowed=Range(floor=0, ceiling=0.5, whole=False),
            why="few large values have few index blocks",
        ),
        Setting(
            name="maxOpenFiles",
            spark="-1",
            value="-1",
            allowed=Range(floor=16, ceiling=1_000_000, or_minus_one=True),
            why="a compacted store has one file",
        ),
        Setting(
            name="allowFAllocate",
            spark="true",
            value="true",
            allowed=BOOLEAN,
            why="moved nothing",
        ),
        Setting(
            name="verifyNonEmptyFilesInZip",
            spark="true",
            value="true",
            allowed=BOOLEAN,
            why="protects snapshots, and cost nothing",
        ),
        Setting(
            name="checkStaleReusedFilesInSnapshot",
            spark="true",
            value="true",
            allowed=BOOLEAN,
            why="protects snapshots from a clean-up elsewhere",
        ),
        Setting(
            name="lockAcquireTimeoutMs",
            spark="120000",
            value="120000",
            allowed=Range(floor=1_000, ceiling=3_600_000),
            why="a lease keeps others away from the store",
        ),
        Setting(
            name="memoryUpdateIntervalMs",
            spark="1000",
            value="1000",
            allowed=Range(floor=0, ceiling=3_600_000),
            why="how often Spark looks; the figures of a batch do not depend on it",
        ),
    )
}

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
