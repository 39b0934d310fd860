"""A stream's state in figures: what `./stateful inspect` tells, as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

# Spark's approximate quantiles are exact for so many keys; beyond, a rank is off by 1 in so many.
QUANTILE_ACCURACY = 10_000


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How a figure is spread over keys.

    The three in the middle are exact for up to QUANTILE_ACCURACY keys, and else approximate.
    """

    least: int
    median: int
    p90: int
    p99: int
    most: int


@dataclass(frozen=True, kw_only=True)
class KeyFigures:
    """One key. Without a state it has a timeout only."""

    key: Any
    bucket: int
    bytes: int
    changed_at: datetime | None
    age_us: int | None
    timeout_at: datetime | None
    state: str | None  # JSON, of a large one the beginning


@dataclass(frozen=True, kw_only=True)
class BucketFigures:
    """One bucket; zeros for one that has nothing yet."""

    bucket: int
    partition: int
    keys: int
    bytes: int
    pending_events: int
    pending_bytes: int


@dataclass(frozen=True, kw_only=True)
class PartitionFigures:
    """One state partition: the sums of its buckets."""

    partition: int
    buckets: int
    keys: int
    bytes: int
    pending_events: int
    pending_bytes: int


@dataclass(frozen=True, kw_only=True)
class Skew:
    """The largest in times of the median; None where the median is nothing."""

    keys: float | None
    bytes: float | None


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """When keys will be woken without an event."""

    kind: str  # the stream's GroupStateTimeout
    keys_with: int
    keys_without: int  # only a new event will ever wake these
    due: int  # the next batch fires them: 0 unless the run ended before its batch without data
    next_at: datetime | None
    last_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class StateReport:
    """A stream's state after its newest committed batch.

    Bytes are uncompressed, as Spark's rows in the state store; ages are from a key's last
    change to `until`, on the stream's own clock, and None before anything is settled.
    """

    stream: str
    generation: int
    batch_id: int
    checkpoint: str
    clock: str  # what the stream's time is: the column of its events
    until: datetime | None
    key: str
    keys: int
    keys_without_state: int
    bytes: int
    pending_events: int
    pending_bytes: int
    bytes_per_key: Spread | None
    age_us: Spread | None
    timeouts: Timeouts
    biggest_keys: tuple[KeyFigures, ...]
    partitions: tuple[PartitionFigures, ...]
    partition_skew: Skew
    buckets: tuple[BucketFigures, ...]
    bucket_skew: Skew


def skew_of(parts: Sequence[BucketFigures] | Sequence[PartitionFigures]) -> Skew:
    """How uneven keys and bytes are spread over partitions or buckets, the empty ones included."""
    return Skew(
        keys=_largest_to_median([part.keys for part in parts]),
        bytes=_largest_to_median([part.bytes for part in parts]),
    )


def _largest_to_median(figures: Sequence[int]) -> float | None:
    middle = median(figures)
    return max(figures) / middle if middle else None
