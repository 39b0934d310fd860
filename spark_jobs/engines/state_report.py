"""A checkpoint's state in figures: aggregated in Spark, so that only a few rows leave it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from include.care.state_figures import (
    QUANTILE_ACCURACY,
    BucketFigures,
    KeyFigures,
    PartitionFigures,
    Spread,
)
from include.fold.admission import EPOCH, MICROSECOND, until_us
from include.fold.buckets import bucket_ids, murmur3
from include.fold.ddl import PENDING
from include.fold.definition import KeyedFold
from spark_jobs.engines.checkpointed_states import read_states, read_variable

BIGGEST_KEYS = 10
STATE_CHARACTERS = 200  # shown of a big key's state
WORD = 8  # Spark's rows are made of words of so many bytes
WIDTHS = {"bigint": WORD, "double": WORD, "boolean": 1}
BITS_OF_WORD = 64


@dataclass(frozen=True)
class Clock:
    """What is settled by the batch, and what the next batch will settle; None for nothing."""

    watermark_us: int | None
    next_watermark_us: int | None


@dataclass(frozen=True)
class KeyTotals:
    """All keys together. The instants are microseconds, None without any such key."""

    keys: int
    keys_without_state: int
    bytes: int
    bytes_per_key: Spread | None
    age_us: Spread | None
    keys_with_timeout: int
    due: int
    next_timeout_us: int | None
    last_timeout_us: int | None


@dataclass(frozen=True)
class StateFigures:
    """What the state of one batch comes to."""

    totals: KeyTotals
    biggest: tuple[KeyFigures, ...]
    buckets: tuple[BucketFigures, ...]


def measure_state(
    session: SparkSession,
    checkpoint: str,
    fold: KeyedFold,
    batch_id: int,
    clock: Clock,
    shape: tuple[int, int],
) -> StateFigures:
    """The figures of the state after a batch. `shape` is its buckets and state partitions.

    Raises Spark's errors when the state cannot be read.
    """
    states = read_states(session, checkpoint, fold, batchId=batch_id)
    keys = key_rows(states, fold, clock).persist()  # read once, for three questions
    try:
        return StateFigures(
            _totals(keys, clock),
            tuple(_biggest(keys)),
            tuple(_buckets(keys, _pending(session, checkpoint, batch_id), *shape)),
        )
    finally:
        keys.unpersist()


def key_rows(states: DataFrame, fold: KeyedFold, clock: Clock) -> DataFrame:
    """Rows of `state_rows_ddl(fold)` as what is asked of each key: its bytes and its age.

    The age is never below 0: buckets that a batch touched may have settled a little more.
    """
    age_us = F.lit(None).cast("bigint")
    if clock.watermark_us is not None:
        since_us = F.lit(clock.watermark_us) - F.col("changed_at_us")
        age_us = F.when(since_us > 0, since_us).when(since_us <= 0, 0)
    shown = F.to_json("state", {"ignoreNullFields": "false"})
    return states.select(
        "bucket",
        "key",
        stored_bytes(fold).cast("bigint").alias("bytes"),
        "changed_at_us",
        age_us.alias("age_us"),
        "timeout_at_us",
        F.substring(shown, 1, STATE_CHARACTERS).alias("shown"),
    )


def stored_bytes(fold: KeyedFold) -> Column:
    """The bytes that a key takes in the arrays of its bucket, as Spark's rows hold them.

    Without a bit or two for nulls, and the buckets' own headers: those are no key's.
    """
    parts = [("key", fold.key_column.kind)]
    parts += [(f"state.{column.name}", column.kind) for column in fold.state_columns]
    times = WORD * (2 if fold.times_out else 1)  # of the last change, and the timeout
    total = F.lit(times)
    for name, kind in parts:
        total += _item_bytes(F.col(name), kind)
    return total


def _item_bytes(value: Column, kind: str) -> Column:
    """Of one item of an array: its width, or a word that says where the rest is, and the rest."""
    if kind in WIDTHS:
        return F.lit(WIDTHS[kind])
    if kind == "string":
        return F.lit(WORD) + F.coalesce(_whole_words(F.octet_length(value)), F.lit(0))
    return F.lit(WORD) + F.coalesce(_array_bytes(value, kind[len("array<") : -1]), F.lit(0))


def _array_bytes(values: Column, kind: str) -> Column:
    """Of an array itself: its length, a bit for each item that may be null, and the items."""
    nulls = F.ceil(F.size(values) / BITS_OF_WORD) * WORD
    if kind in WIDTHS:
        items = F.size(values) * WIDTHS[kind]
    else:
        nothing = F.lit(0).cast("bigint")
        items = F.aggregate(values, nothing, lambda sum_, item: sum_ + _item_bytes(item, kind))
    return F.lit(WORD) + nulls + _whole_words(items)


def _whole_words(length: Column) -> Column:
    return F.ceil(length / WORD) * WORD


def _totals(keys: DataFrame, clock: Clock) -> KeyTotals:
    due = F.lit(False)
    if clock.next_watermark_us is not None:
        due = F.col("timeout_at_us") < until_us(clock.next_watermark_us)
    row = keys.agg(
        F.count("*").alias("keys"),
        F.count_if(F.col("changed_at_us").isNull()).alias("keys_without_state"),
        F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
        *_spread_columns("bytes"),
        *_spread_columns("age_us"),
        F.count("timeout_at_us").alias("keys_with_timeout"),
        F.count_if(due).alias("due"),
        F.min("timeout_at_us").alias("next_timeout_us"),
        F.max("timeout_at_us").alias("last_timeout_us"),
    ).collect()[0]
    return KeyTotals(
        keys=row["keys"],
        keys_without_state=row["keys_without_state"],
        bytes=row["bytes"],
        bytes_per_key=_spread(row, "bytes"),
        age_us=_spread(row, "age_us"),
        keys_with_timeout=row["keys_with_timeout"],
        due=row["due"],
        next_timeout_us=row["next_timeout_us"],
        last_timeout_us=row["last_timeout_us"],
    )


def _spread_columns(name: str) -> list[Column]:
    middle = F.percentile_approx(name, [0.5, 0.9, 0.99], QUANTILE_ACCURACY)
    return [
        F.min(name).alias(f"least_{name}"),
        middle.alias(f"middle_{name}"),
        F.max(name).alias(f"most_{name}"),
    ]


def _spread(row: Row, name: str) -> Spread | None:
    if row[f"least_{name}"] is None:
        return None
    middle, p90, p99 = row[f"middle_{name}"]
    return Spread(
        least=row[f"least_{name}"], median=middle, p90=p90, p99=p99, most=row[f"most_{name}"]
    )


def _biggest(keys: DataFrame) -> Iterable[KeyFigures]:
    # By key, too, so that the same state gives the same answer.
    for row in keys.orderBy(F.desc("bytes"), "key").limit(BIGGEST_KEYS).collect():
        yield KeyFigures(
            key=row["key"],
            bucket=row["bucket"],
            bytes=row["bytes"],
            changed_at=instant(row["changed_at_us"]),
            age_us=row["age_us"],
            timeout_at=instant(row["timeout_at_us"]),
            state=row["shown"],
        )


def _pending(session: SparkSession, checkpoint: str, batch_id: int) -> DataFrame:
    """Of each bucket that has ever been touched: its state partition, and what waits in it."""
    stored = read_variable(session, checkpoint, PENDING, batchId=batch_id)
    length = F.when(F.col(f"{PENDING}.rows") > 0, F.octet_length(f"{PENDING}.events"))
    return stored.select(
        "bucket",
        F.col("partition_id").alias("partition"),
        F.col(f"{PENDING}.rows").alias("pending_events"),
        F.coalesce(length, F.lit(0)).alias("pending_bytes"),
    )


def _buckets(
    keys: DataFrame, pending: DataFrame, buckets: int, partitions: int
) -> Iterable[BucketFigures]:
    sums = keys.groupBy("bucket").agg(F.count("*").alias("keys"), F.sum("bytes").alias("bytes"))
    kept, waiting = _by_bucket(sums), _by_bucket(pending)
    for bucket in bucket_ids(buckets, partitions):
        # Where Spark would put one that it has not seen yet.
        nothing = {"partition": murmur3(bucket) % partitions, "keys": 0, "bytes": 0}
        nothing |= {"pending_events": 0, "pending_bytes": 0}
        known = kept.get(bucket, {}) | waiting.get(bucket, {})
        yield BucketFigures(**{"bucket": bucket} | nothing | known)


def _by_bucket(rows: DataFrame) -> Mapping[int, dict[str, int]]:
    return {row["bucket"]: row.asDict() for row in rows.collect()}


def sum_partitions(
    buckets: Sequence[BucketFigures], partitions: int
) -> tuple[PartitionFigures, ...]:
    """The figures of each state partition."""
    names = ("keys", "bytes", "pending_events", "pending_bytes")
    summed = []
    for number in range(partitions):
        own = [bucket for bucket in buckets if bucket.partition == number]
        sums = {name: sum(getattr(bucket, name) for bucket in own) for name in names}
        summed.append(PartitionFigures(partition=number, buckets=len(own), **sums))
    return tuple(summed)


def instant(us: int | None) -> datetime | None:
    """Microseconds since 1970 as an instant."""
    return None if us is None else EPOCH + us * MICROSECOND
