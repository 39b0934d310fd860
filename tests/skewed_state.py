"""A count per user whose keys are mostly in one bucket; and in which bucket Spark puts a key."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from include.fold.keys import bucket_ids
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import SavepointRules
from include.streams import user_counts
from tests.bronze import stamp
from tests.engines.lake_runs import START_US, drained

SKEWED = replace(
    stream_named("user_counts"),
    buckets=5,
    state_partitions=2,
    savepoints=SavepointRules(cadence=None),
)
HOT, COLD = 30, 2
HOUR_US = 3_600_000_000


def drain_skewed(spark: SparkSession, lake: Lake) -> None:
    """One event of each user in the first run; in the second one an hour later, which completes them."""
    users = hot_and_cold_users(spark)
    events = [user_counts.UserEvent(user, START_US + at) for at, user in enumerate(users)]
    later = user_counts.UserEvent(users[0], START_US + HOUR_US)
    drained(spark, lake, SKEWED, user_counts.FOLD, stamp([events, [later]]), runs=2)


def hot_and_cold_users(spark: SparkSession) -> list[str]:
    """HOT users of one bucket and COLD ones of each other; the later, the longer their names."""
    names = [f"user {'z' * (number // 8)}{number}" for number in range(400)]
    ids = bucket_ids(SKEWED.buckets, SKEWED.state_partitions)
    taken: Counter[int] = Counter()
    users = []
    for name, bucket in zip(names, buckets_of(spark, names, ids), strict=True):
        if taken[bucket] < (HOT if bucket == ids[0] else COLD):
            taken[bucket] += 1
            users.append(name)
    assert sorted(taken.values()) == [COLD] * 4 + [HOT]
    return users


def buckets_of(spark: SparkSession, keys: Iterable[str], ids: Sequence[int]) -> list[int]:
    """The buckets of keys, in their order."""
    keys = list(keys)
    frame = spark.createDataFrame([(key,) for key in keys], "key string")
    rows = frame.selectExpr("key", f"pmod(xxhash64(key), {len(ids)}) AS position").collect()
    positions = {row["key"]: row["position"] for row in rows}
    return [ids[positions[key]] for key in keys]


def partitions_of(spark: SparkSession, ids: Sequence[int], partitions: int) -> dict[int, int]:
    """Where Spark puts groups of these numbers."""
    frame = spark.createDataFrame([(number,) for number in ids], "bucket int")
    rows = frame.selectExpr("bucket", f"pmod(hash(bucket), {partitions}) AS partition").collect()
    return {row["bucket"]: row["partition"] for row in rows}
