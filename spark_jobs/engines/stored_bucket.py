"""A bucket as the state store has it: counts, and states and events as packed Arrow streams.

Spark carries the bytes and looks at none of them: item by item, a bucket's states went through
pickle on both ways.
"""

from typing import NamedTuple

import pyarrow as pa

from include.fold.definition import KeyedFold
from include.fold.schemas import state_schema
from spark_jobs.engines.packing import from_stream, to_stream


class StoredBucket(NamedTuple):
    """The value of BUCKET_STATE (BUCKET_STATE_DDL)."""

    folded_until_us: int
    timer_ms: int | None
    keys: int
    waiting: int  # events
    states: bytes | None  # None without keys
    events: bytes | None  # None when none wait


def packed_keys(states: pa.Table) -> bytes:
    """The value of KEYS for rows of `state_schema`."""
    return to_stream(states.select(["key"]))


def packed_states(fold: KeyedFold, states: pa.Table) -> bytes:
    """What is beside the keys in rows of `state_schema(fold)`."""
    absent = ["key"] if fold.times_out else ["key", "timeout_at_us"]
    return to_stream(states.drop_columns(absent))


def unpacked_states(fold: KeyedFold, keys: bytes, states: bytes) -> pa.Table:
    """Rows of `state_schema(fold)`: the other way round."""
    rows = from_stream(states).add_column(0, "key", from_stream(keys)["key"])
    if not fold.times_out:
        rows = rows.append_column("timeout_at_us", pa.nulls(rows.num_rows, pa.int64()))
    return rows.cast(state_schema(fold))
