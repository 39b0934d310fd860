"""Which numbers name the buckets, so that Spark spreads them evenly.

Spark puts a group on the state partition `murmur3(bucket) mod partitions`, and of the numbers
0 to 31 that puts 20 on two of four partitions: a quarter more than their share, and a batch
takes as long as its fullest partition. So the buckets are named by numbers that fall evenly.
"""

from collections import Counter
from functools import lru_cache
from itertools import count

UINT32 = 2**32 - 1
SPARK_SEED = 42


@lru_cache
def bucket_ids(buckets: int, partitions: int) -> tuple[int, ...]:
    """The `buckets` smallest numbers of which no partition gets more than its share.

    Part of the stored state, as both arguments are: pinned for a generation.
    """
    share = -(-buckets // partitions)
    used: Counter[int] = Counter()
    ids: list[int] = []
    for number in count():
        partition = murmur3(number) % partitions
        if used[partition] < share:
            used[partition] += 1
            ids.append(number)
        if len(ids) == buckets:
            break
    return tuple(ids)


def murmur3(number: int) -> int:
    """Spark's hash of an int: 32-bit murmur3 of its four bytes, as a signed number."""
    block = _rotate(number * 0xCC9E2D51 & UINT32, 15) * 0x1B873593 & UINT32
    mixed = _rotate(SPARK_SEED ^ block, 13) * 5 + 0xE6546B64 & UINT32
    mixed ^= 4  # the length in bytes
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & UINT32
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & UINT32
    mixed ^= mixed >> 16
    return mixed - 2**32 if mixed >> 31 else mixed


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & UINT32
