"""Bucket numbers: as many as asked for, the same for ever, and even over the partitions."""

from collections import Counter

import pytest

from include.fold.keys import bucket_ids, murmur3


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 8, 200])
@pytest.mark.parametrize("buckets", [1, 7, 32, 100, 1024])
def test_no_partition_gets_more_than_its_share(buckets, partitions):
    ids = bucket_ids(buckets, partitions)
    assert len(set(ids)) == buckets
    held = Counter(murmur3(number) % partitions for number in ids)
    assert max(held.values()) <= -(-buckets // partitions)


def test_the_numbers_that_checkpoints_hold_never_change():
    assert bucket_ids(5, 2) == (0, 1, 2, 3, 4)
    assert bucket_ids(32, 4) == (*range(26), 28, 31, 32, 37, 38, 46)


@pytest.mark.spark
def test_the_hash_is_sparks(spark):
    rows = spark.range(-1000, 1000).selectExpr("cast(id AS int) AS n", "hash(cast(id AS int)) AS h")
    assert [(row.n, murmur3(row.n & 2**32 - 1)) for row in rows.collect()] == [
        (row.n, row.h) for row in rows.collect()
    ]
