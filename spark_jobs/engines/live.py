"""The live engine: the fold over checkpointed RocksDB state, one bucket per Spark key.

A batch settles what its own rows prove settled; a bucket that its last commit did not touch
settles by its timer, in the batch without data that Spark runs when the watermark has moved.
"""

from array import array
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from include.fold.admission import (
    MICROSECOND,
    NEVER_US,
    US_PER_MS,
    timer_ms,
    until_us,
    watermark_us,
)
from include.fold.bucket import Settled, check_not_folded, no_events, settle
from include.fold.buckets import bucket_ids
from include.fold.ddl import KEYS, PENDING, PENDING_DDL, STATES, keys_ddl, states_ddl
from include.fold.definition import KeyedFold
from include.fold.states import States
from spark_jobs.engines.engine import Seed
from spark_jobs.engines.packing import (
    Admission,
    PackedRow,
    clock_column,
    from_stream,
    pack_events,
    to_stream,
)
from spark_jobs.engines.pending import pending_events
from spark_jobs.engines.state_rows import group_states, states_from_rows

FOLDED_DDL = (
    "bucket int, outputs binary, rows_in bigint, rows_late bigint, rows_excluded bigint, "
    "rows_folded bigint, pending_change bigint, kept_change bigint, rows_out bigint, "
    "late_first_us bigint, late_last_us bigint, watermark_us bigint, rejected binary"
)
NEVER_FOLDED_US = -(2**63)


def live_fold(
    bronze: DataFrame,
    fold: KeyedFold,
    buckets: int,
    partitions: int,
    watermark_delay: timedelta,
    seed: Seed | None = None,
) -> DataFrame:
    """What each batch of the streaming frame `bronze` folds: FOLDED_DDL, one row per bucket call.

    `partitions` is the number of state partitions of the checkpoint. `outputs` holds the
    emitted rows as an Arrow stream of `output_schema(fold)`, `rejected` the calls that were
    rejected as one of REJECTED; each is null without any. A `seed` is needed in every run.
    """
    delay_us = watermark_delay // MICROSECOND
    since_us = None if seed is None else seed.as_of_us
    ids = bucket_ids(buckets, partitions)
    # On a copy, which packing drops: Spark's timers follow it, but its late filter, which
    # goes by the previous batch, never sees a row. What is late is decided in bronze.
    clocked = bronze.withColumn("fold_clock", F.col(clock_column(fold))).withWatermark(
        "fold_clock", f"{delay_us // US_PER_MS} milliseconds"
    )
    initial = None
    if seed is not None and seed.states is not None:
        initial = _seed_rows(seed.states, seed.waiting, fold, ids).groupBy("bucket")
    return (
        pack_events(clocked, fold, ids, Admission(delay_us, since_us))
        .groupBy("bucket")
        .transformWithStateInPandas(
            BucketProcessor(fold, delay_us, since_us),
            outputStructType=FOLDED_DDL,
            outputMode="Append",
            timeMode="EventTime",
            initialState=initial,
        )
    )


def _seed_rows(
    states: DataFrame, waiting: DataFrame | None, fold: KeyedFold, ids: Sequence[int]
) -> DataFrame:
    """Rows of `bucket, states, events`, of which one is null: what buckets begin with."""
    nothing = F.lit(None).cast("binary")
    rows = group_states(states, fold, ids).select("bucket", "states", nothing.alias("events"))
    if waiting is None:
        return rows
    packed = pack_events(waiting, fold, ids, Admission())
    return rows.union(packed.select("bucket", nothing.alias("states"), "events"))


class BucketProcessor(StatefulProcessor):
    """Carries a bucket between Spark's state store and the fold."""

    def __init__(self, fold: KeyedFold, delay_us: int, since_us: int | None) -> None:
        self._fold = fold
        self._delay_us = delay_us
        self._since_us = NEVER_FOLDED_US if since_us is None else since_us

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        # Apart, because keys are the larger part, and most batches bring no new one.
        self._keys = handle.getValueState(KEYS, keys_ddl(self._fold))
        self._states = handle.getValueState(STATES, states_ddl(self._fold))
        self._pending = handle.getValueState(PENDING, PENDING_DDL)

    def handleInitialState(  # type: ignore[override]  # the pandas flavour gets frames only
        self, key: Any, initialState: pd.DataFrame, timerValues: TimerValues
    ) -> None:
        # Called once for each Arrow chunk, so it adds to what is there.
        states = self._read_states()
        _, old_timer_ms, pending = self._read_pending()
        for stream in initialState["states"].dropna():
            for known in states_from_rows(self._fold, from_stream(stream)):
                states.put(*known)
        events = [from_stream(stream) for stream in initialState["events"].dropna()]
        pending = pa.concat_tables([pending, *events])
        self._write_states(states)
        self._write_pending(self._since_us, old_timer_ms, pending, states, fired_ms=None)

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
        yield self._advance(key[0], packed, watermark, fired_ms=None)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        watermark = timerValues.getCurrentWatermarkInMs() * US_PER_MS
        yield self._advance(key[0], [], watermark, expiredTimerInfo.getExpiryTimeInMs())

    def _advance(
        self, bucket: int, packed: list[PackedRow], watermark: int, fired_ms: int | None
    ) -> pd.DataFrame:
        folded_until, old_timer_ms, pending = self._read_pending()
        events = pa.concat_tables(
            [no_events(self._fold), *(from_stream(row.events) for row in packed)]
        )
        check_not_folded(self._fold, events, folded_until, bucket)
        until = max(folded_until, until_us(watermark))
        # The timer is of the first event or timeout; whole milliseconds, as the watermark is.
        timer_due = old_timer_ms is not None and old_timer_ms * US_PER_MS < until
        waiting = pa.concat_tables([pending, events])
        settled = settle(
            self._fold, self._read_states, waiting, until, timer_due and self._fold.times_out
        )
        if settled.states is not None:
            self._write_states(settled.states)
        self._write_pending(until, old_timer_ms, settled.pending, settled.states, fired_ms)
        return self._report(bucket, packed, settled, pending.num_rows, watermark)

    def _report(
        self,
        bucket: int,
        packed: list[PackedRow],
        settled: Settled,
        pending_before: int,
        watermark: int,
    ) -> pd.DataFrame:
        row = {
            "bucket": bucket,
            "outputs": None if settled.outputs is None else to_stream(settled.outputs),
            "rows_in": sum(row.rows_in for row in packed),
            "rows_late": sum(row.rows_late for row in packed),
            "rows_excluded": sum(row.rows_excluded for row in packed),
            "rows_folded": settled.rows_folded,
            "pending_change": settled.pending.num_rows - pending_before,
            "kept_change": settled.kept_change,
            "rows_out": 0 if settled.outputs is None else settled.outputs.num_rows,
            "late_first_us": min((row.late_first_us for row in packed), default=NEVER_US),
            "late_last_us": max((row.late_last_us for row in packed), default=-NEVER_US),
            "watermark_us": watermark,
            "rejected": None if settled.rejected is None else to_stream(settled.rejected),
        }
        return pd.DataFrame([row])

    def _read_states(self) -> States:
        keys, stored = self._keys.get(), self._states.get()
        if keys is None or stored is None:
            return States(self._fold)
        columns, *times_us = stored  # of the last change, and of the timeout if states have one
        return States(self._fold, keys[0], list(columns), *times_us)

    def _write_states(self, states: States) -> None:
        if not len(states):
            self._keys.clear()
            self._states.clear()
            return
        if states.keys_changed:
            self._keys.update((compact(states.keys, self._fold.key_column.kind),))
        columns = zip(states.columns, self._fold.state_columns, strict=True)
        values = tuple(compact(values, column.kind) for values, column in columns)
        times_us = [states.changed_at_us]
        if self._fold.times_out:
            times_us.append(states.timeouts_us)
        self._states.update((values, *(compact(times, "bigint") for times in times_us)))

    def _read_pending(self) -> tuple[int, int | None, pa.Table]:
        stored = self._pending.get()
        if stored is None:
            return self._since_us, None, no_events(self._fold)
        folded_until, timer, _, events = stored
        return folded_until, timer, pending_events(self._fold, events)

    def _write_pending(
        self,
        until: int,
        old_timer_ms: int | None,
        pending: pa.Table,
        states: States | None,
        fired_ms: int | None,
    ) -> None:
        timer = self._next_timer(old_timer_ms, pending, states)
        self._set_timer(old_timer_ms, timer, fired_ms)
        self._pending.update((until, timer, pending.num_rows, to_stream(pending)))

    def _next_timer(
        self, old_ms: int | None, pending: pa.Table, states: States | None
    ) -> int | None:
        """At the first pending event or timeout; without `states` the timeouts are as before."""
        first_us = pc.min(pending[self._fold.time_us]).as_py()
        timeout_us = NEVER_US if states is None else states.first_timeout_us()
        if timeout_us != NEVER_US:
            first_us = timeout_us if first_us is None else min(first_us, timeout_us)
        # Never before 1970: until it knows better, Spark's watermark is 0, and such a timer
        # would fire at once.
        first_ms = None if first_us is None else max(timer_ms(first_us), 1)
        if states is None and old_ms is not None:
            return old_ms if first_ms is None else min(old_ms, first_ms)
        return first_ms

    def _set_timer(self, old_ms: int | None, new_ms: int | None, fired_ms: int | None) -> None:
        """Keep one timer. Never the one that fires now: Spark deletes it behind the handler."""
        if new_ms == old_ms:
            return
        if old_ms is not None and old_ms != fired_ms:
            self._handle.deleteTimer(old_ms)
        if new_ms is not None:
            self._handle.registerTimer(new_ms)


# A C long is Spark's bigint everywhere but on Windows.
COMPACT_CODES = {"double": "d", "bigint": "l"} if array("l").itemsize == 8 else {"double": "d"}


def compact(values: list[Any], kind: str) -> "list[Any] | array[Any]":
    """`values` as the state store takes them fastest.

    Spark looks at each item of a list several times on its way to the store; an array goes
    as one piece of memory. (Spark 4.2 takes the code "l", but neither "q" nor numpy.)
    """
    code = COMPACT_CODES.get(kind)
    return array(code, values) if code and None not in values else values
