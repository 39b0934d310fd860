"""Checkpoints that release 0.5 has begun: how they go on, and how they are read.

Two things are theirs. Spark knows an operator by its flavour, and 0.5's was the pandas one. And
0.5 stored a bucket item by item: its first call under this release reads that, clears it, and
writes it as it is stored now (Spark lets a query bring new state variables along). All of this is
in one batch, which Spark commits as a whole or not at all.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessorHandle,
    TimerValues,
)

from include.fold.admission import NEVER_US
from include.fold.bucket import no_events
from include.fold.ddl import keys_ddl, states_ddl
from include.fold.definition import KeyedFold
from include.fold.schemas import state_schema
from include.fold.states import NO_STATE_US
from spark_jobs.engines.bucket_processor import BucketProcessor
from spark_jobs.engines.packing import to_stream
from spark_jobs.engines.stored_bucket import StoredBucket, packed_keys, packed_states

OPERATOR = "transformWithStateInPandasExec"
KEYS, STATES, PENDING = "keys", "states", "pending"
PENDING_DDL = "folded_until_us bigint, timer_ms bigint, rows bigint, events binary"
# What is left in the old variable: a bucket that has folded all there will ever be. So 0.5, should
# it be put back, refuses the bucket's next event in place of counting from nothing.
TAKEN_OVER_US = NEVER_US


class FrameProcessor(BucketProcessor):
    """A bucket's processor, to which Spark hands pandas frames."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self._old_keys = handle.getValueState(KEYS, keys_ddl(self._fold))
        self._old_states = handle.getValueState(STATES, states_ddl(self._fold))
        self._old_pending = handle.getValueState(PENDING, PENDING_DDL)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: TimerValues) -> None:
        for row in initialState.itertuples(index=False):
            super().handleInitialState(key, row, timerValues)

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        # (Named rows would make a class for each frame: a sixth of the time of a small bucket.)
        plain = (row for frame in rows for row in frame.itertuples(index=False, name=None))
        return map(_frame, super().handleInputRows(key, plain, timerValues))

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Any]:
        return map(_frame, super().handleExpiredTimer(key, timerValues, expiredTimerInfo))

    def _read(self) -> StoredBucket:
        pending = None if self._bucket.exists() else self._old_pending.get()
        if pending is None:
            return super()._read()
        folded_until_us, timer_ms, waiting, events = pending
        rows = self._old_rows()
        states = None
        if rows.num_rows:
            states = packed_states(self._fold, rows)
            self._keys.update((packed_keys(rows),))
        self._old_keys.clear()
        self._old_states.clear()
        self._old_pending.update((TAKEN_OVER_US, None, 0, to_stream(no_events(self._fold))))
        events = events if waiting else None
        return StoredBucket(folded_until_us, timer_ms, rows.num_rows, waiting, states, events)

    def _old_rows(self) -> pa.Table:
        """The states as rows of `state_schema`. Values pass through as they were stored."""
        keys, stored, schema = (
            self._old_keys.get(),
            self._old_states.get(),
            state_schema(self._fold),
        )
        if keys is None or stored is None:
            return schema.empty_table()
        columns, changed_at_us, *timeouts = stored
        absent = np.array(changed_at_us) == NO_STATE_US
        timeouts_us = np.array(timeouts[0] if timeouts else [NEVER_US] * len(absent))
        fields = list(schema.field("state").type)
        arrays = [pa.array(v, field.type) for v, field in zip(columns, fields, strict=True)]
        rows = [
            pa.array(keys[0], schema.field("key").type),
            pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(absent)),
            pa.array(changed_at_us, pa.int64(), mask=absent),
            pa.array(timeouts_us, pa.int64(), mask=timeouts_us == NEVER_US),
        ]
        return pa.table(rows, schema=schema)


def _frame(row: Any) -> pd.DataFrame:
    return pd.DataFrame([row.asDict()])


def read_old_waiting(pending: DataFrame) -> DataFrame:
    """`bucket, waiting, events` of the buckets that no batch has taken over."""
    events = F.when(F.col("rows") > 0, F.col("events"))
    rows = pending.where(F.col("folded_until_us") < TAKEN_OVER_US)
    return rows.select("bucket", F.col("rows").alias("waiting"), events.alias("events"))


def read_old_states(keys: DataFrame, states: DataFrame, fold: KeyedFold) -> DataFrame:
    """Rows of `state_rows_ddl(fold)` of 0.5's two variables, each with its `bucket`."""
    fields = [f"state.{column.name}" for column in fold.state_columns]
    times = ["changed_at_us"] + ["timeout_at_us"] * fold.times_out
    zipped = F.arrays_zip("key", *times, *fields)
    rows = keys.join(states, "bucket").select("bucket", F.explode(zipped).alias("row"))
    state = F.struct(*(F.col(f"row.{column.name}") for column in fold.state_columns))
    changed_us, timeout_us = F.col("row.changed_at_us"), F.lit(None).cast("bigint")
    if fold.times_out:
        state = F.when(changed_us != NO_STATE_US, state)
        timeout_us = F.nullif("row.timeout_at_us", F.lit(NEVER_US))
    return rows.select(
        "bucket",
        "row.key",
        state.alias("state"),
        F.nullif(changed_us, F.lit(NO_STATE_US)).alias("changed_at_us"),
        timeout_us.alias("timeout_at_us"),
    )
