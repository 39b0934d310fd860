"""The processor that Spark pickles: its state variables, and the `BucketProcessor` that a worker makes of it.

As each query begins, Spark waits for a Python process that asks `init` for the state variables. It needs
no Arrow, whose import took a quarter of a second.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructType

from include.fold.definition import BUCKET_STATE, KEYS, KeyedFold

if TYPE_CHECKING:
    from spark_jobs.engines.bucket_processor import BucketProcessor

# Of the state variables KEYS and BUCKET_STATE. Not as DDL, which each task would have the JVM parse twice.
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
    """A `BucketProcessor` of these arguments, made by the first call that needs it."""

    def __init__(self, fold: KeyedFold, delay_us: int, since_us: int | None) -> None:
        self._arguments = (fold, delay_us, since_us)

    def init(self, handle: StatefulProcessorHandle) -> None:
        keys = handle.getValueState(KEYS, KEYS_SCHEMA)
        self._variables = (handle, keys, handle.getValueState(BUCKET_STATE, BUCKET_SCHEMA))

    # Spark gives some of the arguments by name.
    def handleInitialState(self, *given: Any, **named: Any) -> None:
        self._processor.handleInitialState(*given, **named)

    def handleInputRows(self, *given: Any, **named: Any) -> Iterator[Any]:
        return self._processor.handleInputRows(*given, **named)

    def handleExpiredTimer(self, *given: Any, **named: Any) -> Iterator[Any]:
        return self._processor.handleExpiredTimer(*given, **named)

    @cached_property
    def _processor(self) -> "BucketProcessor":
        from spark_jobs.engines.bucket_processor import BucketProcessor

        return BucketProcessor(*self._arguments, *self._variables)
