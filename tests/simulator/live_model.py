"""Spark's loop of micro-batches over a checkpoint, without Spark: the live queries of a simulation.

The operator is the live engine's own, carried by `tests/engines/plain_operator.py`. Around it is
what Spark does: a batch is planned in the log of offsets, its state is written, the function of
`foreachBatch` is called, and the batch is committed; a batch that was planned and not committed
is run again, over the same rows and from the state before it. A run ends with a batch without
data when the watermark has moved; a run that was cut off before that leaves it to the next data.
"""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from include.fold.admission import MICROSECOND, US_PER_MS
from include.fold.arrow_values import DEAD_LETTERS, event_schema, output_schema
from include.fold.bucket import INSTANTS
from include.fold.definition import BUCKET_STATE, KEY, KEYS, KeyedFold
from include.fold.event_order import keys_of
from include.fold.keys import buckets_of
from include.fold.states import States
from spark_jobs.engines.engine import FoldedBatch, LiveQuery, WriteBatch
from spark_jobs.engines.live_batch import SUMMED
from spark_jobs.engines.packing import clock_column, from_stream, to_stream
from spark_jobs.engines.state_rows import StoredBucket, unpacked_states
from tests.engines.plain_operator import PlainOperator
from tests.simulator.checkpoint_log import CheckpointError, CheckpointLog, Offset, Planned
from tests.simulator.delta_source import DeltaSource

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


RETAINED_BY_COMPACTION = 2


class LiveModel:
    """`LiveRunner` of `engines.local_engine`."""

    def drain(self, query: LiveQuery, write: WriteBatch) -> list[dict[str, Any]]:
        """Run the query as `trigger(availableNow=True)` does. Nothing is measured."""
        _Run(query, write).to_end()
        return []

    def states(self, checkpoint: str, fold: KeyedFold, batch_id: int) -> pa.Table:
        """The states after a batch, as rows of `state_schema`."""
        values = _values(CheckpointLog(checkpoint).read_state(batch_id + 1))
        tables = [States(fold).rows()]
        for (name, bucket), keys in values.items():
            if name == KEYS:
                rows = unpacked_states(fold, keys[0], StoredBucket(*values[BUCKET_STATE, bucket]))
                tables.append(States(fold, rows).rows())
        return pa.concat_tables(tables)


def _values(parts: Iterable[Any]) -> dict[tuple[str, int], Any]:
    return {at: value for part in parts for at, value in part["values"].items()}


class _Batch(NamedTuple):
    """One batch. Without data `start` is `end`."""

    batch_id: int
    watermark_ms: int
    start: Offset | None
    end: Offset


class _Run:
    """One run of a query."""

    def __init__(self, query: LiveQuery, write: WriteBatch) -> None:
        self._query = query
        self._write = write
        self._log = CheckpointLog(query.checkpoint, query.stream.state_partitions)
        bronze = query.lake.bronze(query.stream.source)
        self._source = DeltaSource(query.lake, bronze, query.first_version)

    def to_end(self) -> None:
        self._log.begin()
        last, was_run = self._newest()
        if last is not None:
            self._source.plan_again(last.start, last.end)
        if last is not None and not was_run:
            self._run(last)
        executed = None if was_run else last
        while (batch := self._next(last, executed)) is not None:
            planned = Planned(batch.batch_id, batch.watermark_ms, batch.end, self._source.table_id)
            self._log.plan(planned)
            self._run(batch)
            last = executed = batch

    def _newest(self) -> tuple[_Batch | None, bool]:
        """The newest planned batch, and whether it was committed."""
        newest = self._log.newest("offsets")
        if newest is None:
            if self._log.newest("commits") is not None:
                raise CheckpointError(f"{self._log.folder}/offsets has no batch")
            return None, True
        planned = self._log.planned(newest)
        self._source.check_same_table(planned.table_id)
        start = self._log.planned(newest - 1).end if newest else None
        batch = _Batch(newest, planned.watermark_ms, start, planned.end)
        return batch, self._log.newest("commits") == newest

    def _next(self, last: _Batch | None, executed: _Batch | None) -> _Batch | None:
        """The batch that follows `last`; `executed` is the newest that this run has executed."""
        start = None if last is None else last.end
        batch_id = 0 if last is None else last.batch_id + 1
        watermark_ms = 0 if last is None else self._log.next_watermark_ms(last.batch_id)
        end = self._source.next_end(start, one_file=self._query.compacting)
        if end is not None:
            return _Batch(batch_id, watermark_ms, start, end)
        if executed is not None and watermark_ms > executed.watermark_ms:
            return _Batch(batch_id, watermark_ms, executed.end, executed.end)
        return None

    def _run(self, batch: _Batch) -> None:
        reports, next_watermark_ms = self._folded(batch)
        self._write(_as_folded(reports, self._query.fold), batch.batch_id)
        self._log.commit(batch.batch_id, next_watermark_ms)
        self._log.purge(batch.batch_id, dict(self._query.settings))
        if self._query.compacting:
            self._log.delete_old_versions(batch.batch_id + 1, RETAINED_BY_COMPACTION)

    def _folded(self, batch: _Batch) -> tuple[list[dict[str, Any]], int]:
        """The reports of the buckets, whose state is written by then, and the next batch's watermark."""
        query, next_ms = self._query, batch.watermark_ms
        delay_us = query.stream.watermark_delay // MICROSECOND
        operator = Operator(query, delay_us, batch.watermark_ms)
        if batch.batch_id == 0 and query.seed is not None and query.seed.states is not None:
            operator.take_seed(query.seed.states, query.seed.waiting)
        operator.load(self._log.read_state(batch.batch_id))
        if batch.start != batch.end:
            rows = self._source.read(batch.start, batch.end, operator.columns)
            operator.fold([rows])
            newest_us = pc.max(rows[clock_column(query.fold)].cast(pa.int64())).as_py()
            if newest_us is not None:
                next_ms = max(next_ms, newest_us // US_PER_MS - delay_us // US_PER_MS)
        operator.expire_timers()
        parts = operator.parts(query.stream.state_partitions)
        self._log.write_state(batch.batch_id + 1, parts, snapshot=query.compacting)
        return operator.reports, next_ms


def _as_folded(reports: list[dict[str, Any]], fold: KeyedFold) -> FoldedBatch:
    counts: dict[str, Any] = {name: sum(r[name] for r in reports) for name in SUMMED}
    counts |= {
        "late_first_us": min((r["late_first_us"] for r in reports), default=None),
        "late_last_us": max((r["late_last_us"] for r in reports), default=None),
        "buckets_touched": len(reports),
        "watermark_us": max((r["watermark_us"] for r in reports), default=None),
        "buckets_with_dead_letters": sum(r["dead_letters"] is not None for r in reports),
        "rows_in_most": max((r["rows_in"] for r in reports), default=None),
    }
    emitted, dead_letters = (
        pa.concat_tables(
            [schema.empty_table(), *(from_stream(r[name]) for r in reports if r[name])]
        )
        for name, schema in (("outputs", output_schema(fold)), ("dead_letters", DEAD_LETTERS))
    )
    return FoldedBatch(counts, emitted, dead_letters)
