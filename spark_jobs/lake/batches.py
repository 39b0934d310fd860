"""What happens with each batch of a stream: its rows and its record, each exactly once."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import StreamingQueryProgress

from include.lake import Lake
from include.ops import append_ops, read_ops, update_ops
from spark_jobs.fold.admission import until_us
from spark_jobs.lake.tables import ProductTable, count_folded

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
BATCH_KEY = ("stream", "generation", "batch_id")


class CountsError(RuntimeError):
    """The rows of a batch do not add up: some were lost or counted twice."""


class BatchWriter:
    """The function of `foreachBatch` for one run of a stream."""

    def __init__(
        self, lake: Lake, stream: str, generation: int, table: ProductTable, run_id: str
    ) -> None:
        self._lake = lake
        self._stream = stream
        self._generation = generation
        self._table = table
        self._run_id = run_id
        self._written: list[dict[str, Any]] = []

    def __call__(self, folded: DataFrame, batch_id: int) -> None:
        # Once, and before the first write. Without it the operator would run once per write;
        # and a repeated batch, whose writes are all skipped, would run it never, so that its
        # state is not committed and Spark refuses the batch for ever.
        folded.persist()
        try:
            counts = count_folded(folded)
            self._check(counts, batch_id)
            if counts["rows_out"]:
                self._table.write_once(folded, self._app_id("table"), batch_id)
            self._record(counts, batch_id)
        finally:
            folded.unpersist()

    def _check(self, counts: dict[str, Any], batch_id: int) -> None:
        accounted = counts["rows_folded"] + counts["rows_late"] + counts["pending_change"]
        if counts["rows_in"] != accounted:
            raise CountsError(
                f"{self._stream} batch {batch_id}: {counts['rows_in']} rows read, but "
                f"{accounted} folded, late or pending: {counts}"
            )

    def _record(self, counts: dict[str, Any], batch_id: int) -> None:
        before = last_batch(self._lake, self._stream, self._generation, before=batch_id)
        pending = (before["rows_pending"] if before else 0) + counts.pop("pending_change")
        row = {
            "stream": self._stream,
            "generation": self._generation,
            "batch_id": batch_id,
            "run_id": self._run_id,
            "committed_at": datetime.now(UTC),
            "rows_pending": pending,
            "watermark": _watermark(counts.pop("watermark_us"), before),
            **counts,
        }
        append_ops(self._lake, "batches", [row], (self._app_id("batches"), batch_id))
        self._written.append(row)

    def _app_id(self, table: str) -> str:
        return f"{self._stream}/{self._generation}/{table}"

    def totals(self) -> dict[str, int]:
        """The run's counts so far, as `ops/runs` names them."""
        counted = ("rows_in", "rows_folded", "rows_late", "rows_out")
        totals = {name: sum(row[name] for row in self._written) for name in counted}
        return totals | {"batches": len(self._written)}


def _watermark(micros: int | None, before: dict[str, Any] | None) -> datetime | None:
    """The watermark after a batch: it never goes back, and an empty batch moves nothing."""
    known = before["watermark"] if before else None
    if micros is None:
        return known
    reached = EPOCH + micros * MICROSECOND
    return max(reached, known) if known else reached


def last_batch(
    lake: Lake, stream: str, generation: int, before: int | None = None
) -> dict[str, Any] | None:
    """The newest recorded batch (below the id `before`), with `until` beside its watermark."""
    recorded = read_ops(lake, "batches", {"stream": stream, "generation": generation})
    rows = recorded.to_pylist()
    earlier = (row for row in rows if before is None or row["batch_id"] < before)
    newest = max(earlier, key=lambda row: row["batch_id"], default=None)
    if newest is not None:
        newest["until"] = _until(newest["watermark"])
    return newest


def _until(watermark: datetime | None) -> datetime | None:
    if watermark is None:
        return None
    return EPOCH + until_us((watermark - EPOCH) // MICROSECOND) * MICROSECOND


def record_progress(
    lake: Lake, stream: str, generation: int, progress: Sequence[StreamingQueryProgress]
) -> None:
    """Add what Spark measured to the run's rows of `ops/batches`.

    Separate from the counts, which must be there even if the run is killed before this.
    """
    rows = [
        {
            "stream": stream,
            "generation": generation,
            "batch_id": batch.batchId,
            "state_bytes": sum(state.memoryUsedBytes for state in batch.stateOperators),
            "state_rows": sum(state.numRowsTotal for state in batch.stateOperators),
            "durations_ms": json.dumps(dict(batch.durationMs)),
            "state_metrics": json.dumps([dict(s.customMetrics) for s in batch.stateOperators]),
        }
        for batch in progress
        if batch.stateOperators  # a progress without an operator is of no batch
    ]
    update_ops(lake, "batches", BATCH_KEY, rows)
