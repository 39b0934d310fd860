"""The writer of a live query's batches, each exactly once, and the checks that rows meet before that."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from include.catalogue import FINDINGS, Figure, dead_letters_finding
from include.fold.admission import instant_of
from include.job import RunRecord, tell_progress
from include.lake.dead_letters import dead_letters_now
from include.lake.generations import GenerationRow, app_id
from include.lake.ops import Finding, record_findings
from include.lake.paths import Lake
from include.settings import Check, DataCheckError, Stream, Verdict
from include.stream.open_stream import OpenStream
from include.stream.record import (
    WATERMARK,
    StreamRecord,
    added,
    after_batch,
    begun_by,
    commit_alone,
    totals_of,
)
from include.text_table import counted
from spark_jobs.engines.engine import FoldedBatch
from spark_jobs.tables.dead_letters import DeadLetters
from spark_jobs.tables.product import Product

STOPPED, WARNED = FINDINGS["data_check_failed"], FINDINGS["data_check_warning"]
SHOWN_CHARACTERS = 200  # of an example row

Judge = Callable[[Sequence[Check]], list[Verdict]]


class DataChecks:
    """The checks of one stream (`checks=` of its entry) in one run, asked of rows before they are published.

    `then` is the command that goes on with the stream. Of rows that are in the table already, as those
    of a batch that a kill has cut off behind its write, nothing is asked: to refuse them would take
    nothing back.
    """

    def __init__(self, lake: Lake, stream: Stream, run: RunRecord, then: str) -> None:
        self._lake = lake
        self._stream = stream
        self._run = run
        self._then = then
        self.stopped: DataCheckError | None = None

    def refuse_wrong(self, table: Product) -> None:
        """Raise SettingsError for a check that cannot be asked of the table's rows."""
        if self._stream.checks:
            table.refuse_wrong(self._stream.checks)

    def admit(self, judge: Judge, what: str) -> None:
        """Ask all checks of rows that are about to be published; DataCheckError if they must not be."""
        if not self._stream.checks:
            return
        name, run_id = self._stream.name, self._run["run_id"]
        not_met = [verdict for verdict in judge(self._stream.checks) if not verdict.is_met]
        if errors := [verdict for verdict in not_met if verdict.check.severity == "error"]:
            found = self._found(STOPPED, errors, f"nothing of {what} was published")
            record_findings(self._lake, run_id, name, findings=[found])
            said = f"{name}: {found.detail}. To do: {found.action}"
            self.stopped = DataCheckError(said, command=self._then)
            raise self.stopped
        # Before the rows are published: after a kill they are not asked again.
        outcome = f"{what} was published all the same"
        warnings = [self._found(WARNED, [verdict], outcome) for verdict in not_met]
        record_findings(self._lake, run_id, name, findings=warnings)

    def _found(self, figure: Figure, verdicts: Sequence[Verdict], what_came: str) -> Finding:
        detail = "; ".join([*map(_text, verdicts), what_came])
        action = f"{STOPPED.do}: `{self._then}`" if figure is STOPPED else None
        count = sum(verdict.failing or 0 for verdict in verdicts) or None
        return figure.found(self._stream.name, detail, action, count=count)


def _text(verdict: Verdict) -> str:
    name, all_rows = verdict.check.name, counted(verdict.rows, "row")
    condition = " ".join(verdict.check.condition.split())  # in one line
    if verdict.problem is not None:
        return f"check {name}: `{condition}` fails for rows of {all_rows}: {verdict.problem}"
    if verdict.failing is None:
        return f"check {name}: {all_rows} together do not meet `{condition}`"
    shown = ", ".join(example[:SHOWN_CHARACTERS] for example in verdict.examples)
    return f"check {name}: {verdict.failing:,} of {all_rows} do not meet `{condition}`, such as {shown}"


SUMMED = (
    "rows_in",
    "rows_late",
    "rows_before_initial_state",
    "rows_folded",
    "pending_change",
    "rows_out",
    "rows_duplicate",
)
COUNTED = tuple(name for name in SUMMED if name.startswith("rows_"))
NOT_REPORTED = {"pending_change", WATERMARK}  # their totals are
DEAD_LETTERED = ("rows_dead_lettered", "timeouts_dead_lettered")


@dataclass
class BatchWriter:
    """The writer of the batches of one run of a stream: an engine calls it with each of them."""

    opened: OpenStream  # as it was when the run began
    row: GenerationRow  # of the generation, with what is new with the run
    run_id: str
    table: Product
    dead_letters: DeadLetters
    checks: DataChecks
    memory_mb: int | None = None  # that RocksDB may use

    def __post_init__(self) -> None:
        self._lake, self._stream = self.opened.lake, self.opened.name
        self._generation = self.row["generation"]
        self.record = self.opened.record
        self._written: list[dict[str, Any]] = []

    def __call__(self, folded: FoldedBatch, batch_id: int) -> None:
        counts = dict(folded.counts)
        newest = self.record.batch_of(self._generation)
        is_written = newest is not None and newest >= batch_id  # by a run that was killed behind it
        if counts["rows_out"] and not is_written:
            judge = partial(self.table.judge, folded.emitted)
            self.checks.admit(judge, f"batch {batch_id}")
        known = self.record.row
        if known is not None and known["code_changed_at_us"] != self.row["code_changed_at_us"]:
            changed = FINDINGS["code_changed"]
            found = changed.found(self._stream, changed.help)
            record_findings(self._lake, self.run_id, self._stream, findings=[found])
        self.begin()
        counts |= self._write_dead_letters(
            folded, counts.pop("buckets_with_dead_letters"), is_written
        )
        if not is_written:
            record = after_batch(
                self._lake,
                self.record,
                self.row,
                batch_id,
                added(totals_of(self.record, self.row), counts),
            )
            record = replace(record, **dead_letters_now(self._lake, self._stream))
            rows = folded.emitted if counts["rows_out"] else None
            writer = app_id(self._stream, self._generation)
            self.table.write_once(rows, writer, batch_id, record.as_json())
            self.record = record
        self._note(counts, batch_id)

    def begin(self) -> StreamRecord:
        """Return the record with the run's own entry; if that is new, and the generation has a batch, it is committed."""
        own = begun_by(self.row, self.record, self.run_id, self.opened.identity.code)
        if own.number == 0 or self.record.row != self.row:
            is_going_on = self.record.batch_of(self._generation) is not None
            self.record = replace(self.record, row=self.row).with_entry(own)
            if is_going_on:
                commit_alone(self._lake, self.record)
        return self.record

    def _write_dead_letters(
        self, folded: FoldedBatch, buckets: int, is_written: bool
    ) -> dict[str, Any]:
        """Write the dead letters, unless the batch `is_written`; return their columns of `ops/batches`."""
        summary = self.dead_letters.summary([folded.dead_letters]) if buckets else None
        if summary is None:
            return dict.fromkeys(DEAD_LETTERED, 0)
        if not is_written:
            self.dead_letters.append(folded.dead_letters)
        events, timeouts, first_us, last_us = summary
        first, last = instant_of(first_us), instant_of(last_us)
        found = dead_letters_finding(self._stream, events, timeouts, first, last)
        # Before the batch is committed: after a kill they are not reported again.
        record_findings(self._lake, self.run_id, self._stream, findings=[found])
        return {
            "rows_dead_lettered": events,
            "timeouts_dead_lettered": timeouts,
            "dead_letters_from": first,
            "dead_letters_to": last,
        }

    def _note(self, counts: dict[str, Any], batch_id: int) -> None:
        late_from_us, late_to_us = counts.pop("late_first_us"), counts.pop("late_last_us")
        totals = totals_of(self.record, self.row)
        watermark_us = totals[WATERMARK]
        row = {
            "stream": self._stream,
            "generation": self._generation,
            "batch_id": batch_id,
            "run_id": self.run_id,
            "memory_mb": self.memory_mb,
            "committed_at": datetime.now(UTC),
            "watermark": None if watermark_us is None else instant_of(watermark_us),
            "late_from": instant_of(late_from_us) if counts["rows_late"] else None,
            "late_to": instant_of(late_to_us) if counts["rows_late"] else None,
            **{name: value for name, value in counts.items() if name not in NOT_REPORTED},
            "rows_pending": totals["rows_pending"],
        }
        self._written.append(row)
        rows = sum(written["rows_in"] for written in self._written)
        tell_progress(f"{self._stream}: {len(self._written)} batches, {rows:,} rows")

    def committed(
        self, newest: int | None, measured: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the run's rows of `ops/batches` up to the batch `newest`, with the engine's measurements."""
        last = -1 if newest is None else newest
        done = [row for row in self._written if row["batch_id"] <= last]
        of_batch = {batch["batch_id"]: batch for batch in measured}
        return [{**row, **of_batch.get(row["batch_id"], {})} for row in done]


def totals_of_run(batches: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the counts of a run's committed batches, as `ops/runs` names them."""
    totals = {name: sum(row[name] for row in batches) for name in (*COUNTED, *DEAD_LETTERED)}
    return totals | {"batches": len(batches)}
