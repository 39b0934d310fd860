"""The live engine: the fold over checkpointed RocksDB state, one bucket per Spark key.

A batch settles what its own rows prove settled; a bucket that its last commit did not touch
settles by its timer, in the batch without data that Spark runs when the watermark has moved.
"""

from array import array
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from spark_jobs.engines.bucket import check_not_folded, no_events, settle
from spark_jobs.engines.packing import PackedRow, from_stream, pack_events, to_stream
from spark_jobs.engines.schemas import PENDING_DDL, keys_ddl, states_ddl
from spark_jobs.fold.admission import MICROSECOND, US_PER_MS, timer_ms, until_us, watermark_us
from spark_jobs.fold.buckets import bucket_ids
from spark_jobs.fold.definition import EVENT_TIME_US, KeyedFold
from spark_jobs.fold.states import States

FOLDED_DDL = (
    "bucket int, outputs binary, rows_in bigint, rows_late bigint, rows_folded bigint, "
    "pending_change bigint, rows_out bigint, watermark_us bigint"
)
KEYS, STATES, PENDING = "keys", "states", "pending"
NEVER_FOLDED_US = -(2**63)


def live_fold(
    bronze: DataFrame, fold: KeyedFold, buckets: int, partitions: int, watermark_delay: timedelta
) -> DataFrame:
    """What each batch of the streaming frame `bronze` folds: FOLDED_DDL, one row per bucket call.

    `partitions` is the number of state partitions of the checkpoint. `outputs` holds the
    emitted rows as an Arrow stream of `output_schema(fold)`.
    """
    delay_us = watermark_delay // MICROSECOND
    # On a copy, which packing drops: Spark's timers follow it, but its late filter, which
    # goes by the previous batch, never sees a row. What is late is decided in bronze.
    clocked = bronze.withColumn("fold_clock", F.col("commit_watermark")).withWatermark(
        "fold_clock", f"{delay_us // US_PER_MS} milliseconds"
    )
    return (
        pack_events(clocked, fold, bucket_ids(buckets, partitions), late_after_us=delay_us)
        .groupBy("bucket")
        .transformWithStateInPandas(
            BucketProcessor(fold, delay_us),
            outputStructType=FOLDED_DDL,
            outputMode="Append",
            timeMode="EventTime",
        )
    )


class BucketProcessor(StatefulProcessor):
    """Carries a bucket between Spark's state store and the fold."""

    def __init__(self, fold: KeyedFold, delay_us: int) -> None:
        self._fold = fold
        self._delay_us = delay_us

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        # Apart, because keys are the larger part, and most batches bring no new one.
        self._keys = handle.getValueState(KEYS, keys_ddl(self._fold))
        self._states = handle.getValueState(STATES, states_ddl(self._fold))
        self._pending = handle.getValueState(PENDING, PENDING_DDL)

    def handleInputRows(  # type: ignore[override]  # the pandas flavour gets frames only
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        # All of a batch's rows first: only then is it known what they settle.
        # (Named rows would make a class for each frame: a sixth of the time of a small bucket.)
        plain = (row for frame in rows for row in frame.itertuples(index=False, name=None))
        packed = [PackedRow(*row) for row in plain]
        commit_us = max(row.commit_us for row in packed)
        watermark = watermark_us(commit_us, self._delay_us)
        known_ms = timerValues.getCurrentWatermarkInMs()
        if known_ms > 0:  # Spark says 0 for "none yet"
            watermark = max(watermark, known_ms * US_PER_MS)
        events = pa.concat_tables([from_stream(row.events) for row in packed])
        rows_in = sum(row.rows_in for row in packed)
        rows_late = sum(row.rows_late for row in packed)
        yield self._advance(key[0], events, watermark, rows_in, rows_late, fired_ms=None)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        watermark = timerValues.getCurrentWatermarkInMs() * US_PER_MS
        fired_ms = expiredTimerInfo.getExpiryTimeInMs()
        yield self._advance(key[0], no_events(self._fold), watermark, 0, 0, fired_ms)

    def _advance(
        self,
        bucket: int,
        events: pa.Table,
        watermark: int,
        rows_in: int,
        rows_late: int,
        fired_ms: int | None,
    ) -> pd.DataFrame:
        folded_until, old_timer_ms, pending = self._read_pending()
        check_not_folded(self._fold, events, folded_until, bucket)
        until = max(folded_until, until_us(watermark))
        waiting = pa.concat_tables([pending, events])
        settled = settle(self._fold, self._read_states, waiting, until)
        if settled.states is not None:
            self._write_states(settled.states)
        self._write_pending(until, old_timer_ms, settled.pending, fired_ms)
        row = {
            "bucket": bucket,
            "outputs": None if settled.outputs is None else to_stream(settled.outputs),
            "rows_in": rows_in,
            "rows_late": rows_late,
            "rows_folded": settled.rows_folded,
            "pending_change": settled.pending.num_rows - pending.num_rows,
            "rows_out": 0 if settled.outputs is None else settled.outputs.num_rows,
            "watermark_us": watermark,
        }
        return pd.DataFrame([row])

    def _read_states(self) -> States:
        keys, stored = self._keys.get(), self._states.get()
        if keys is None or stored is None:
            return States(self._fold)
        columns, changed_at_us = stored
        return States(self._fold, keys[0], list(columns), changed_at_us)

    def _write_states(self, states: States) -> None:
        if not len(states):
            self._keys.clear()
            self._states.clear()
            return
        if states.keys_changed:
            self._keys.update((compact(states.keys, self._fold.key_column.kind),))
        columns = zip(states.columns, self._fold.state_columns, strict=True)
        values = tuple(compact(values, column.kind) for values, column in columns)
        self._states.update((values, compact(states.changed_at_us, "bigint")))

    def _read_pending(self) -> tuple[int, int | None, pa.Table]:
        stored = self._pending.get()
        if stored is None:
            return NEVER_FOLDED_US, None, no_events(self._fold)
        folded_until, timer, _, events = stored
        return folded_until, timer, from_stream(events)

    def _write_pending(
        self, until: int, old_timer_ms: int | None, pending: pa.Table, fired_ms: int | None
    ) -> None:
        timer = self._set_timer(old_timer_ms, pending, fired_ms)
        self._pending.update((until, timer, pending.num_rows, to_stream(pending)))

    def _set_timer(self, old_ms: int | None, pending: pa.Table, fired_ms: int | None) -> int | None:
        """Keep one timer, at the first pending event. Never the one that fires now: Spark
        deletes it behind the handler."""
        first_us = pc.min(pending[EVENT_TIME_US]).as_py()
        # Never before 1970: until it knows better, Spark's watermark is 0, and such a timer
        # would fire at once.
        new_ms = None if first_us is None else max(timer_ms(first_us), 1)
        if new_ms == old_ms:
            return new_ms
        if old_ms is not None and old_ms != fired_ms:
            self._handle.deleteTimer(old_ms)
        if new_ms is not None:
            self._handle.registerTimer(new_ms)
        return new_ms


# A C long is Spark's bigint everywhere but on Windows.
COMPACT_CODES = {"double": "d", "bigint": "l"} if array("l").itemsize == 8 else {"double": "d"}


def compact(values: list[Any], kind: str) -> "list[Any] | array[Any]":
    """`values` as the state store takes them fastest.

    Spark looks at each item of a list several times on its way to the store; an array goes
    as one piece of memory. (Spark 4.2 takes the code "l", but neither "q" nor numpy.)
    """
    code = COMPACT_CODES.get(kind)
    return array(code, values) if code and None not in values else values


def read_states(session: SparkSession, checkpoint: str, fold: KeyedFold) -> DataFrame:
    """The states in a checkpoint after its last batch, as rows of `state_rows_ddl(fold)`."""
    _ = session.streams.active  # starts what the state reader needs in a new session (SPARK-58973)
    stored = [
        session.read.format("statestore")
        .option("stateVarName", name)
        .load(checkpoint)
        .select(F.col("key.bucket").alias("bucket"), F.col("value").alias(name))
        for name in (KEYS, STATES)
    ]
    keys, states = stored
    fields = [f"states.state.{column.name}" for column in fold.state_columns]
    zipped = F.arrays_zip("keys.key", "states.changed_at_us", *fields)
    rows = keys.join(states, "bucket").select("bucket", F.explode(zipped).alias("row"))
    state = F.struct(*(F.col(f"row.{column.name}") for column in fold.state_columns))
    return rows.select("bucket", "row.key", state.alias("state"), "row.changed_at_us")
