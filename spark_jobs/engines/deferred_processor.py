"""What Spark holds of a stream's processor: its state variables. What folds is made where a bucket is.

As each query begins, Spark starts a process of Python, asks `init` for the state variables, and ends
it. It waits for that: imports of Arrow, of which `init` needs none, were a quarter of a second of it.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import BinaryType, LongType, StructType

from include.fold.definition import BUCKET_STATE, KEYS, KeyedFold

if TYPE_CHECKING:
    from spark_jobs.engines.bucket_processor import BucketProcessor

# What the state variables KEYS and BUCKET_STATE hold. Not as DDL, which each task would have the
# JVM parse, twice.
KEYS_SCHEMA = StructType().add("keys", BinaryType())  # the column `key` of `state_schema`
BUCKET_SCHEMA = (
    StructType()
    .add("folded_until_us", LongType())
    .add("timer_ms", LongType())
    .add("keys", LongType())
    .add("waiting", LongType())
    .add("states", BinaryType())
    .add("events", BinaryType())
)


class DeferredProcessor(StatefulProcessor):
    """A `BucketProcessor` of these arguments, made by the first call that has something to do."""

    def __init__(self, fold: KeyedFold, delay_us: int, since_us: int | None) -> None:
        self._arguments = (fold, delay_us, since_us)

    def init(self, handle: StatefulProcessorHandle) -> None:
        keys = handle.getValueState(KEYS, KEYS_SCHEMA)
        self._variables = (handle, keys, handle.getValueState(BUCKET_STATE, BUCKET_SCHEMA))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: TimerValues) -> None:
        self._processor.handleInitialState(key, initialState, timerValues)

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        return self._processor.handleInputRows(key, rows, timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Any]:
        return self._processor.handleExpiredTimer(key, timerValues, expiredTimerInfo)

    @cached_property
    def _processor(self) -> "BucketProcessor":
        # Imported here: this is what the process that only asks for the variables has not to.
        from spark_jobs.engines.bucket_processor import BucketProcessor

        return BucketProcessor(*self._arguments, *self._variables)
