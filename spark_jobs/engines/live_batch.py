"""How a batch of the live engine is committed: its rows and its record, each exactly once."""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from include.lake import Lake
from include.ops import append_ops
from spark_jobs.engines.packing import unpack
from spark_jobs.engines.schemas import output_ddl
from spark_jobs.fold.admission import EPOCH, MICROSECOND
from spark_jobs.fold.definition import KeyedFold
from spark_jobs.lake.batches import last_batch
from spark_jobs.lake.generations import app_id
from spark_jobs.lake.tables import ProductTable


class CountsError(RuntimeError):
    """The rows of a batch do not add up: some were lost or counted twice."""


class BatchWriter:
    """The function of `foreachBatch` for one run of a stream."""

    def __init__(
        self,
        lake: Lake,
        stream: str,
        generation: int,
        fold: KeyedFold,
        table: ProductTable,
        run_id: str,
    ) -> None:
        self._lake = lake
        self._stream = stream
        self._generation = generation
        self._fold = fold
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
                emitted = unpack(folded, "outputs", output_ddl(self._fold))
                self._table.write_once(emitted, self._app_id("table"), batch_id)
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
        return app_id(self._stream, self._generation, table)

    def totals(self, committed: int | None) -> dict[str, int]:
        """The run's counts up to the batch `committed`, as `ops/runs` names them.

        A batch that was written and not committed is counted by the run that repeats it.
        """
        done = [
            row
            for row in self._written
            if row["batch_id"] <= (-1 if committed is None else committed)
        ]
        counted = ("rows_in", "rows_folded", "rows_late", "rows_out")
        totals = {name: sum(row[name] for row in done) for name in counted}
        return totals | {"batches": len(done)}


def _watermark(micros: int | None, before: dict[str, Any] | None) -> datetime | None:
    """The watermark after a batch: it never goes back, and an empty batch moves nothing."""
    known = before["watermark"] if before else None
    if micros is None:
        return known
    reached = EPOCH + micros * MICROSECOND
    return max(reached, known) if known else reached


def count_folded(folded: DataFrame) -> dict[str, Any]:
    """The counts of a batch (FOLDED_DDL), added up over its buckets. Runs the whole frame."""
    row = folded.agg(
        *(
            F.coalesce(F.sum(name), F.lit(0)).alias(name)
            for name in ("rows_in", "rows_late", "rows_folded", "pending_change", "rows_out")
        ),
        F.count(F.lit(1)).alias("buckets_touched"),
        F.max("watermark_us").alias("watermark_us"),
    ).first()
    if row is None:  # an aggregate without groups always has one row
        raise RuntimeError("Spark returned no row for a global aggregate")
    return row.asDict()
