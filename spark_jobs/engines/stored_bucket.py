"""A bucket as the state store has it: counts, and states and events as packed Arrow streams.

Spark carries the bytes and looks at none of them: item by item, a bucket's states went through
pickle on both ways.
"""

from typing import NamedTuple

import pyarrow as pa

from include.fold.definition import KeyedFold
from include.fold.failures import BrokenInvariantError
from include.fold.schemas import state_schema
from spark_jobs.engines.packing import from_stream, to_stream

# Spark hands bytes to Python a character at a time, at 60 to 190 MB/s: compressed, fewer cross. Of
# less than this a buffer's own start costs more.
COMPRESSED_FROM_BYTES = 16 * 1024


class StoredBucket(NamedTuple):
    """A value of BUCKET_SCHEMA: how far the bucket is folded, its one timer, and what it holds."""

    folded_until_us: int
    timer_ms: int | None
    keys: int
    waiting: int  # events
    states: bytes | None  # beside the keys, in their order; None without keys
    events: bytes | None  # None when none wait


def packed_keys(states: pa.Table) -> bytes:
    """The value of KEYS for rows of `state_schema`."""
    return packed(states.select(["key"]))


def packed_states(fold: KeyedFold, states: pa.Table) -> bytes:
    """What is beside the keys in rows of `state_schema(fold)`."""
    absent = ["key"] if fold.times_out else ["key", "timeout_at_us"]
    return packed(states.drop_columns(absent))


def packed(rows: pa.Table) -> bytes:
    """`rows` as the state store has them: an Arrow stream, compressed where that pays."""
    return to_stream(rows, "zstd" if rows.nbytes >= COMPRESSED_FROM_BYTES else None)


def unpacked_states(fold: KeyedFold, keys: bytes | None, stored: StoredBucket) -> pa.Table:
    """Rows of `state_schema(fold)`: the other way round.

    BrokenInvariantError when keys and states are not of one bucket.
    """
    rows = state_schema(fold).empty_table() if stored.states is None else from_stream(stored.states)
    known = [] if keys is None else from_stream(keys)["key"]
    if not rows.num_rows == len(known) == stored.keys:
        raise BrokenInvariantError(
            f"a bucket of stream {fold.stream} has {len(known)} keys and {rows.num_rows} states, and "
            f"should have {stored.keys}: its checkpoint is damaged. Put it back from a copy, or make "
            f"the state anew from bronze: `./stateful reseed {fold.stream} --apply`"
        )
    rows = rows.add_column(0, "key", known)
    if not fold.times_out:
        rows = rows.append_column("timeout_at_us", pa.nulls(rows.num_rows, pa.int64()))
    schema = state_schema(fold)
    return rows.select(schema.names).cast(schema)
