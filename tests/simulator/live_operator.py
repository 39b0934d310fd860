"""The stateful operator of one batch: the live engine's own, over rows of bronze in Arrow."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from include.fold.arrow_values import event_schema
from include.fold.bucket import INSTANTS
from include.fold.definition import KEY
from include.fold.event_order import keys_of
from include.fold.keys import buckets_of
from spark_jobs.engines.engine import LiveQuery
from spark_jobs.engines.packing import to_stream
from tests.engines.plain_operator import PlainOperator

BRONZE_COLUMNS = (
    "event_time",
    "ingested_at",
    "watermark_before",
    "watermark_after",
    "is_heartbeat",
)


class Operator(PlainOperator):
    """The operator of one batch: its state comes from a checkpoint, its rows from bronze."""

    def __init__(self, query: LiveQuery, delay_us: int, watermark_ms: int) -> None:
        since_us = None if query.seed is None else query.seed.as_of_us
        super().__init__(query.fold, delay_us, query.stream.buckets, since_us)
        self.watermark_ms = watermark_ms
        self.reports: list[dict[str, Any]] = []
        names = {INSTANTS.get(n, n) for n in event_schema(query.fold).names if n != KEY}
        self.columns = sorted(names | set(BRONZE_COLUMNS))

    def load(self, parts: Iterable[Any]) -> None:
        for part in parts:
            self.values |= part["values"]
            self.timers |= part["timers"]

    def parts(self, partitions: int) -> list[Any]:
        """The state of each partition."""
        return [
            {
                "values": {at: v for at, v in self.values.items() if at[1] % partitions == number},
                "timers": {timer for timer in self.timers if timer[0] % partitions == number},
            }
            for number in range(partitions)
        ]

    def take_seed(self, states: pa.Table, waiting: pa.Table | None) -> None:
        """The initial state, before the first batch: once for each bucket's states and events."""
        for column, rows in (("states", states), ("events", waiting)):
            if rows is None:
                continue
            keys = rows["key"] if column == "states" else keys_of(self._fold, rows)
            buckets = pa.array(buckets_of(keys, range(self._buckets)))
            for bucket in buckets.unique().to_pylist():
                stream = to_stream(rows.filter(pc.equal(buckets, bucket)))
                row = SimpleNamespace(**({"states": None, "events": None} | {column: stream}))
                processor = self._processor(bucket)
                processor.handleInitialState((bucket,), row, self._timer_values())

    def _take(self, reports: Iterable[Row]) -> None:
        self.reports += [report.asDict() for report in reports]
