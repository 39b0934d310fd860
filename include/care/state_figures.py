"""A stream's state in figures: what `./stateful inspect` tells, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

import numpy as np

from include.care.bucket_state import BIGGEST_KEYS, POINTS, BucketState, Sample
from include.checkpoint.committed_batch import CommittedBatch
from include.fold.admission import US_PER_MS, until_us
from include.fold.buckets import bucket_ids, murmur3
from include.fold.definition import KeyedFold
from include.fold.instants import instant_of

Row = dict[str, Any]
SUMMED = ("keys", "bytes", "pending_events", "pending_bytes")
SHARES = np.array([0.5, 0.9, 0.99])
# By how much of all keys the rank of a quantile is off at most: by the keys of each bucket for
# which one point stands.
QUANTILE_ERROR = 1 / POINTS


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How a figure is spread over keys.

    The three in the middle are exact while no bucket has more than POINTS keys; beyond, their
    ranks are off by QUANTILE_ERROR of the keys at most.
    """

    least: int
    median: int
    p90: int
    p99: int
    most: int


@dataclass(frozen=True, kw_only=True)
class Skew:
    """The largest in times of the median; None where the median is nothing."""

    keys: float | None
    bytes: float | None


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """When keys will be woken without an event."""

    kind: str  # the stream's GroupStateTimeout
    ttl: str | None = None  # after which a state that no call has touched is taken away
    keys_with: int
    keys_without: int  # only a new event will ever wake these
    due: int  # the next batch fires them: 0 unless the run ended before its batch without data
    next_at: datetime | None
    last_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class StateReport:
    """A stream's state after its newest committed batch.

    Bytes are uncompressed, as Arrow holds the rows of states; ages are from a key's last change
    to `until`, on the stream's own clock, and None before anything is settled.
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
    # key, bucket, bytes, changed_at, age_us, timeout_at; state: JSON, of a large one the beginning
    biggest_keys: Sequence[Row]
    partitions: Sequence[Row]  # partition, buckets, and the sums of these
    partition_skew: Skew
    buckets: Sequence[Row]  # bucket, partition, SUMMED; zeros for one that has nothing yet
    bucket_skew: Skew
    # What lies beside the states: None in a stream that has no such thing.
    seen_values: int | None = None  # by which events are known as duplicates
    timers: Mapping[str, int] | None = None  # how many keys have set each


def report_of(
    stream: str,
    fold: KeyedFold,
    batch: CommittedBatch,
    shape: tuple[int, int],
    measured: Sequence[BucketState],
    waiting: Mapping[int, tuple[int, int]],
) -> StateReport:
    """The report of the state after `batch`, of its buckets that have keys.

    `shape` is the number of buckets and of state partitions. `waiting` has the events that wait
    in a bucket, and their bytes.
    """
    settled_us = None if batch.watermark_ms is None else batch.watermark_ms * US_PER_MS
    buckets = _buckets(shape, measured, waiting)
    partitions = [_partition(number, buckets) for number in range(shape[1])]
    return StateReport(
        stream=stream,
        generation=batch.generation,
        batch_id=batch.batch_id,
        checkpoint=batch.checkpoint,
        clock="ingestion time" if fold.in_processing_time else "event time",
        until=None if settled_us is None else instant_of(until_us(settled_us)),
        key=fold.keys.text(),
        **_sums(buckets),
        keys_without_state=sum(each.sizes.of - each.changed_us.of for each in measured),
        bytes_per_key=_spread([each.sizes for each in measured]),
        age_us=_ages([each.changed_us for each in measured], settled_us),
        timeouts=_timeouts(fold, measured),
        biggest_keys=_biggest(measured, settled_us),
        partitions=partitions,
        partition_skew=_skew_of(partitions),
        buckets=buckets,
        bucket_skew=_skew_of(buckets),
        seen_values=sum(each.seen for each in measured) if fold.deduplicate else None,
        timers={name: sum(each.timers[name] for each in measured) for name in fold.timers} or None,
    )


def _spread(samples: Sequence[Sample]) -> Spread | None:
    filled = [sample for sample in samples if sample.of]
    if not filled:
        return None
    points = np.concatenate([sample.points for sample in filled])
    weights = [np.full(len(each.points), each.of / len(each.points)) for each in filled]
    order = points.argsort()
    ordered, ranks = points[order], np.concatenate(weights)[order].cumsum()
    middle, p90, p99 = ordered[ranks.searchsorted(SHARES * ranks[-1])].tolist()
    return Spread(least=int(ordered[0]), median=middle, p90=p90, p99=p99, most=int(ordered[-1]))


def _ages(changed_us: Sequence[Sample], settled_us: int | None) -> Spread | None:
    # Never below 0: buckets that a batch touched may have settled a little more.
    if settled_us is None:
        return None
    return _spread([Sample(n, np.maximum(settled_us - points, 0)) for n, points in changed_us])


def _timeouts(fold: KeyedFold, measured: Sequence[BucketState]) -> Timeouts:
    keys_with = sum(each.timeouts_us.of for each in measured)
    between = _spread([each.timeouts_us for each in measured])
    return Timeouts(
        kind=fold.timeout,
        ttl=None if fold.ttl is None else str(fold.ttl),
        keys_with=keys_with,
        keys_without=sum(each.sizes.of for each in measured) - keys_with,
        due=sum(each.due for each in measured),
        next_at=instant_of(between.least) if between else None,
        last_at=instant_of(between.most) if between else None,
    )


def _biggest(measured: Sequence[BucketState], settled_us: int | None) -> list[Row]:
    rows = [row for each in measured for row in each.biggest]
    rows.sort(key=lambda row: (-row["bytes"], _order(row["key"])))
    return [_key_row(row, settled_us) for row in rows[:BIGGEST_KEYS]]


def _order(key: Any) -> tuple[bool, Any]:
    """Keys may be None, or of several fields: these have no order of their own."""
    is_plain = isinstance(key, (int, str))
    return not is_plain, key if is_plain else repr(key)


def _key_row(row: Row, settled_us: int | None) -> Row:
    changed_us, timeout_us = row["changed_at_us"], row["timeout_at_us"]
    is_aged = changed_us is not None and settled_us is not None
    return {
        "key": row["key"],
        "bucket": row["bucket"],
        "bytes": row["bytes"],
        "changed_at": None if changed_us is None else instant_of(changed_us),
        "age_us": max(settled_us - changed_us, 0) if is_aged else None,
        "timeout_at": None if timeout_us is None else instant_of(timeout_us),
        "state": row["state"],
    }


def _buckets(
    shape: tuple[int, int],
    measured: Sequence[BucketState],
    waiting: Mapping[int, tuple[int, int]],
) -> list[Row]:
    kept = {each.bucket: (each.sizes.of, each.bytes) for each in measured}
    rows = []
    for bucket in bucket_ids(*shape):
        figures = kept.get(bucket, (0, 0)) + waiting.get(bucket, (0, 0))
        place = {"bucket": bucket, "partition": murmur3(bucket) % shape[1]}  # as Spark does
        rows.append(place | dict(zip(SUMMED, figures, strict=True)))
    return rows


def _partition(number: int, buckets: Sequence[Row]) -> Row:
    own = [bucket for bucket in buckets if bucket["partition"] == number]
    return {"partition": number, "buckets": len(own)} | _sums(own)


def _sums(rows: Sequence[Row]) -> dict[str, int]:
    return {name: sum(row[name] for row in rows) for name in SUMMED}


def _skew_of(parts: Sequence[Row]) -> Skew:
    """How uneven keys and bytes are spread over partitions or buckets, the empty ones included."""
    return Skew(keys=_largest_to_median(parts, "keys"), bytes=_largest_to_median(parts, "bytes"))


def _largest_to_median(parts: Sequence[Row], name: str) -> float | None:
    figures = [part[name] for part in parts]
    middle = median(figures)
    return max(figures) / middle if middle else None
