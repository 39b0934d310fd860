"""The processor of a bucket, between Spark's state store and the fold.

A batch folds what its own rows prove complete; a bucket that its last commit did not touch folds by its
timer, in the batch without data that Spark runs when the watermark has moved.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from include.fold.admission import NEVER_US, US_PER_MS, timer_ms, until_us, watermark_us
from include.fold.bucket import Complete, check_not_folded, fold_complete, no_events
from include.fold.definition import KeyedFold
from include.fold.states import States
from spark_jobs.engines.packing import PackedRow, any_stream, from_stream, hide_modules_from_gc
from spark_jobs.engines.state_rows import (
    StoredBucket,
    packed,
    packed_states,
    pending_events,
    states_from_rows,
    unpacked_states,
)

FOLDED_DDL = (
    "bucket int, outputs binary, rows_in bigint, rows_late bigint, rows_before_initial_state bigint, "
    "rows_folded bigint, pending_change bigint, rows_out bigint, "
    "late_first_us bigint, late_last_us bigint, watermark_us bigint, dead_letters binary, "
    "rows_duplicate bigint"
)
NEVER_FOLDED_US = -(2**63)


class BucketProcessor:
    """The processor of all buckets of a stream; it keeps nothing between calls."""

    def __init__(
        self,
        fold: KeyedFold,
        delay_us: int,
        since_us: int | None,
        handle: StatefulProcessorHandle,
        keys: ValueState,
        bucket: ValueState,
    ) -> None:
        hide_modules_from_gc()
        self._fold = fold
        self._delay_us = delay_us
        self._since_us = NEVER_FOLDED_US if since_us is None else since_us
        self._handle, self._keys, self._bucket = handle, keys, bucket

    def handleInitialState(self, key: Any, initialState: Any, timerValues: TimerValues) -> None:
        """Begin a bucket with a row of `states, events`, of which it may have several."""
        stored = self._read()
        states, pending = None, pending_events(self._fold, stored.events)
        if initialState.states is not None:
            given = from_stream(initialState.states)
            states = self._states(stored)
            states.fetch(given["key"])
            for known in states_from_rows(self._fold, given):
                states.put(*known)
        if initialState.events is not None:
            pending = pa.concat_tables([pending, from_stream(initialState.events)])
        self._write(stored, self._since_us, pending, states, fired_ms=None)

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        """Fold a batch's rows (PACKED) of a bucket; yields one row of FOLDED_DDL."""
        # All rows first: only then is the watermark known.
        packed = [PackedRow(*row) for row in rows]
        commit_us = max(row.commit_us for row in packed)
        watermark = watermark_us(commit_us, self._delay_us)
        known_ms = timerValues.getCurrentWatermarkInMs()
        if known_ms > 0:  # Spark says 0 for "none yet"
            watermark = max(watermark, known_ms * US_PER_MS)
        yield self._advance(key[0], packed, watermark, fired_ms=None)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Any]:
        """Fold what is complete by the bucket's timer; yields one row of FOLDED_DDL."""
        watermark = timerValues.getCurrentWatermarkInMs() * US_PER_MS
        yield self._advance(key[0], [], watermark, fired_ms=expiredTimerInfo.getExpiryTimeInMs())

    def _advance(
        self, bucket: int, packed: list[PackedRow], watermark: int, fired_ms: int | None
    ) -> Row:
        stored = self._read()
        pending = pending_events(self._fold, stored.events)
        events = pa.concat_tables(
            [no_events(self._fold), *(from_stream(row.events) for row in packed)]
        )
        check_not_folded(self._fold, events, stored.folded_until_us, bucket=bucket)
        until = max(stored.folded_until_us, until_us(watermark))
        # The timer is of the first event or timeout; whole milliseconds, as the watermark is.
        timer_due = stored.timer_ms is not None and stored.timer_ms * US_PER_MS < until
        complete = fold_complete(
            self._fold,
            lambda: self._states(stored),
            pa.concat_tables([pending, events]),
            until_us=until,
            timeouts_due=timer_due and self._fold.changes_by_clock,
        )
        self._write(stored, until, complete.pending, complete.states, fired_ms)
        return _report(bucket, packed, complete, pending.num_rows, watermark)

    def _read(self) -> StoredBucket:
        value = self._bucket.get()
        if value is None:
            return StoredBucket(self._since_us, None, 0, waiting=0, states=None, events=None)
        return StoredBucket(*value)

    def _states(self, stored: StoredBucket) -> States:
        if stored.states is None:
            return States(self._fold)
        (keys,) = self._keys.get() or (None,)
        return States(self._fold, unpacked_states(self._fold, keys, stored))

    def _write(
        self,
        stored: StoredBucket,
        until: int,
        pending: pa.Table,
        states: States | None,
        fired_ms: int | None,
    ) -> None:
        """Store the bucket; `states` is None when none was read."""
        timer = self._next_timer(stored.timer_ms, pending, states)
        self._set_timer(stored.timer_ms, timer, fired_ms)
        keys, held = stored.keys, stored.states and bytes(stored.states)
        if states is not None:
            rows = states.rows()
            keys = rows.num_rows
            held = packed_states(self._fold, rows) if keys else None
            if not keys:
                self._keys.clear()
            elif states.keys_changed:
                self._keys.update((packed(rows.select(["key"])),))
        waiting = pending.num_rows
        events = packed(pending) if waiting else None
        self._bucket.update(
            StoredBucket(until, timer, keys, waiting=waiting, states=held, events=events)
        )

    def _next_timer(
        self, old_ms: int | None, pending: pa.Table, states: States | None
    ) -> int | None:
        """Return the timer of the first pending event or timeout; without `states` the timeouts are as before."""
        first_us = pc.min(pending[self._fold.time_us]).as_py()
        timeout_us = NEVER_US if states is None else states.first_timeout_us()
        if timeout_us != NEVER_US:
            first_us = timeout_us if first_us is None else min(first_us, timeout_us)
        # Never before 1970: Spark's watermark begins at 0, and such a timer would fire at once.
        first_ms = None if first_us is None else max(timer_ms(first_us), 1)
        if states is None and old_ms is not None:
            return old_ms if first_ms is None else min(old_ms, first_ms)
        return first_ms

    def _set_timer(self, old_ms: int | None, new_ms: int | None, fired_ms: int | None) -> None:
        """Keep one timer; the one that fires now Spark deletes after the handler."""
        if new_ms == old_ms:
            return
        if old_ms is not None and old_ms != fired_ms:
            self._handle.deleteTimer(old_ms)
        if new_ms is not None:
            self._handle.registerTimer(new_ms)


def _report(
    bucket: int, packed: list[PackedRow], complete: Complete, pending_before: int, watermark: int
) -> Row:
    return Row(
        bucket=bucket,
        outputs=any_stream(complete.outputs),
        rows_in=sum(row.rows_in for row in packed),
        rows_late=sum(row.rows_late for row in packed),
        rows_before_initial_state=sum(row.rows_before_initial_state for row in packed),
        rows_folded=complete.rows_folded,
        pending_change=complete.pending.num_rows - pending_before,
        rows_out=complete.outputs.num_rows,
        late_first_us=min((row.late_first_us for row in packed), default=NEVER_US),
        late_last_us=max((row.late_last_us for row in packed), default=-NEVER_US),
        watermark_us=watermark,
        dead_letters=any_stream(complete.dead_letters),
        rows_duplicate=complete.rows_duplicate,
    )
