"""How a batch of the live engine is committed: its rows and its record, each exactly once."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from include.checkpoint.committed_batch import TOTALS, last_batch, running_totals
from include.coverage.entries import Entry
from include.coverage.marks import mark_of
from include.fold.admission import EPOCH, MICROSECOND
from include.lake.commits import is_written
from include.lake.delta_log import delta_table
from include.lake.findings import record_findings, rejected_findings
from include.lake.generations import app_id
from include.lake.ops import append_ops
from include.lake.paths import Lake
from spark_jobs.engines.data_checks import DataChecks
from spark_jobs.engines.engine import FoldedBatch, ProductTable, RejectedTable

SUMMED = (
    "rows_in",
    "rows_late",
    "rows_excluded",
    "rows_folded",
    "pending_change",
    "kept_change",
    "rows_out",
    "rows_duplicate",
)
COUNTED = (
    "rows_in",
    "rows_folded",
    "rows_late",
    "rows_excluded",
    "rows_duplicate",
    "rows_out",
)
REJECTIONS = ("rows_rejected", "timeouts_rejected")


class CountsError(RuntimeError):
    """The rows of a batch do not add up: some were lost or counted twice."""


class BatchWriter:
    """What an engine calls with each batch of one run of a stream."""

    def __init__(
        self,
        lake: Lake,
        stream: str,
        generation: int,
        table: ProductTable,
        rejected: RejectedTable,
        checks: DataChecks,
        covered: Callable[[], Entry],
        run_id: str,
        kept_at_start: int = 0,
        profile: int | None = None,
        pending_at_start: int = 0,
    ) -> None:
        self._lake = lake
        self._stream = stream
        self._generation = generation
        self._table = table
        self._rejected = rejected
        self._checks = checks
        self._covered = covered  # the ledger's entry of the run, which is made when first asked for
        self._run_id = run_id
        self._kept_at_start = kept_at_start  # states of the initial state without a timeout
        self._pending_at_start = pending_at_start  # events that a reseed brought along
        self._profile = profile  # of ops/rocksdb_profiles
        self._written: list[dict[str, Any]] = []
        self._rejected_keys: Counter[str] = Counter()  # in the run so far

    def __call__(self, folded: FoldedBatch, batch_id: int) -> None:
        counts = folded.counts()
        self._check(counts, batch_id)
        if counts["rows_out"]:
            self._admit(folded, batch_id)
        covered = self._covered()  # before the first row of this code
        if counts["rows_out"]:
            mark = mark_of(replace(covered, batch_id=batch_id))
            self._table.write_once(folded.emitted, self._app_id("table"), batch_id, mark)
        counts |= self._write_rejected(folded, batch_id, counts.pop("buckets_rejecting"))
        self._record(counts, batch_id)

    def _admit(self, folded: FoldedBatch, batch_id: int) -> None:
        """Ask the stream's checks of what is about to be written, unless it has been."""
        if not self._checks.declared:
            return
        if is_written(delta_table(self._table.path), self._app_id("table"), batch_id):
            return
        self._checks.admit(
            lambda checks: self._table.judge([folded.emitted], checks),
            f"batch {batch_id}",
            self._generation,
            batch_id=batch_id,
        )

    def _write_rejected(self, folded: FoldedBatch, batch_id: int, buckets: int) -> dict[str, Any]:
        """Write what `buckets` rejected to a table of its own; what that is for `ops/batches`."""
        summary = self._rejected.summary([folded.rejected]) if buckets else None
        if summary is None:
            return {"rows_rejected": 0, "timeouts_rejected": 0}
        self._rejected.append_once(folded.rejected, self._app_id("rejected"), batch_id)
        self._rejected_keys += summary.by_key
        first, last = _instant(summary.first_us), _instant(summary.last_us)
        counts = (summary.events, summary.timeouts)
        found = rejected_findings(self._stream, *counts, (first, last), self._rejected_keys)
        # Before the batch is recorded: of one that a kill has cut off behind that nobody tells again.
        record_findings(self._lake, self._run_id, self._stream, findings=found)
        return {
            "rows_rejected": summary.events,
            "timeouts_rejected": summary.timeouts,
            "rejected_from": first,
            "rejected_to": last,
        }

    def _check(self, counts: dict[str, Any], batch_id: int) -> None:
        parts = ("rows_folded", "rows_late", "rows_excluded", "rows_duplicate", "pending_change")
        accounted = sum(counts[part] for part in parts)
        if counts["rows_in"] != accounted:
            raise CountsError(
                f"{self._stream} batch {batch_id}: {counts['rows_in']} rows read, but "
                f"{accounted} folded, late, excluded, duplicate or pending: {counts}"
            )

    def _record(self, counts: dict[str, Any], batch_id: int) -> None:
        before = last_batch(self._lake, self._stream, self._generation, before=batch_id)
        totals = running_totals(self._lake, self._stream, self._generation, newest=before)
        late_from_us, late_to_us = counts.pop("late_first_us"), counts.pop("late_last_us")
        row = {
            "stream": self._stream,
            "generation": self._generation,
            "batch_id": batch_id,
            "run_id": self._run_id,
            "profile": self._profile,
            "committed_at": datetime.now(UTC),
            "rows_pending": _level(
                before, "rows_pending", counts.pop("pending_change"), start=self._pending_at_start
            ),
            "kept_without_timeout": _level(
                before, "kept_without_timeout", counts.pop("kept_change"), start=self._kept_at_start
            ),
            "watermark": _watermark(counts.pop("watermark_us"), before),
            "late_from": _instant(late_from_us) if counts["rows_late"] else None,
            "late_to": _instant(late_to_us) if counts["rows_late"] else None,
            **counts,
            **{total: totals[total] + counts[name] for total, name in TOTALS.items()},
        }
        append_ops(self._lake, "batches", [row], (self._app_id("batches"), batch_id))
        self._written.append(row)

    def _app_id(self, table: str) -> str:
        return app_id(self._stream, self._generation, table)

    def committed(self, newest: int | None) -> list[dict[str, Any]]:
        """The run's rows of `ops/batches` up to the batch `newest`.

        A batch that was written and not committed belongs to the run that repeats it.
        """
        return [
            row for row in self._written if row["batch_id"] <= (-1 if newest is None else newest)
        ]

    def totals(self, newest: int | None) -> dict[str, int]:
        """The counts of the run's `committed` batches, as `ops/runs` names them."""
        done = self.committed(newest)
        totals = {name: sum(row[name] for row in done) for name in (*COUNTED, *REJECTIONS)}
        return totals | {"batches": len(done)}


def _level(before: dict[str, Any] | None, name: str, change: int, start: int = 0) -> int:
    """A level after a batch that changed it."""
    return (start if before is None else before[name]) + change


def _instant(micros: int) -> datetime:
    return EPOCH + micros * MICROSECOND


def _watermark(micros: int | None, before: dict[str, Any] | None) -> datetime | None:
    """The watermark after a batch: it never goes back, and an empty batch moves nothing."""
    known = before["watermark"] if before else None
    if micros is None:
        return known
    reached = _instant(micros)
    return max(reached, known) if known else reached
