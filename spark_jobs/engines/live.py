"""The live engine: the fold over checkpointed RocksDB state, one bucket per Spark key."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from include.fold.admission import MICROSECOND, US_PER_MS
from include.fold.buckets import bucket_ids
from include.fold.definition import KeyedFold
from spark_jobs.engines.bucket_processor import FOLDED_DDL
from spark_jobs.engines.deferred_processor import DeferredProcessor
from spark_jobs.engines.engine import Seed
from spark_jobs.engines.packing import Admission, pack_events
from spark_jobs.engines.spark_events import BronzeEvents
from spark_jobs.engines.state_rows import group_states

Pack = Callable[[DataFrame, KeyedFold, Sequence[int], Admission], DataFrame]


def live_fold(
    bronze: DataFrame,
    fold: KeyedFold,
    buckets: int,
    partitions: int,
    watermark_delay: timedelta,
    seed: Seed | None = None,
    pack: Pack = pack_events,
) -> DataFrame:
    """What each batch of the streaming frame `bronze` folds: FOLDED_DDL, one row per bucket call.

    `partitions` is the number of state partitions of the checkpoint. `outputs` holds the
    emitted rows as an Arrow stream of `output_schema(fold)`, `rejected` the calls that were
    rejected as one of REJECTED; each is null without any. A `seed` is needed in every run.
    `pack`: who reads the rows.
    """
    delay_us = watermark_delay // MICROSECOND
    since_us = None if seed is None else seed.as_of_us
    ids = bucket_ids(buckets, partitions)
    initial = None
    if seed is not None and seed.states is not None:
        initial = _seed_rows(seed.states, seed.waiting, fold, ids).groupBy("bucket")
    packed = _clocked(pack(bronze, fold, ids, Admission(delay_us, since_us)), delay_us)
    # With rows: a frame of pandas costs a bucket a millisecond more.
    return packed.groupBy("bucket").transformWithState(
        DeferredProcessor(fold, delay_us, since_us),
        outputStructType=FOLDED_DDL,
        outputMode="Append",
        timeMode="EventTime",
        initialState=initial,
    )


def _clocked(packed: DataFrame, delay_us: int) -> DataFrame:
    """`packed` with a watermark that Spark's timers follow.

    On a copy, which is dropped: Spark's late filter, which goes by the previous batch, never sees
    a row. What is late is decided in bronze.
    """
    clocked = packed.withColumn("fold_clock", F.timestamp_micros("commit_us"))
    delay = f"{delay_us // US_PER_MS} milliseconds"
    return clocked.withWatermark("fold_clock", delay).drop("fold_clock")


def _seed_rows(
    states: DataFrame, waiting: BronzeEvents | None, fold: KeyedFold, ids: Sequence[int]
) -> DataFrame:
    """Rows of `bucket, states, events`, of which one is null: what buckets begin with."""
    nothing = F.lit(None).cast("binary")
    rows = group_states(states, fold, ids).select("bucket", "states", nothing.alias("events"))
    if waiting is None:
        return rows
    packed = waiting.pack(fold, ids)
    return rows.union(packed.select("bucket", nothing.alias("states"), "events"))
