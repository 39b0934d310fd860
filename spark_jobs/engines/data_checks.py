"""A stream's checks (`checks=` of its entry): asked of rows before these are published.

Whatever publishes asks: a batch of the live query, the rows of an initial state, a recompute, a
reseed. Of rows that are in the table already, as those of a batch that a kill has cut off behind
its write, nothing is asked again: to refuse them would take nothing back.
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from include.job import RunRecord
from include.lake.findings import Finding, record_findings
from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.settings import Check, DataCheckError, Stream, Verdict
from include.text_table import counted
from spark_jobs.tables.product import Product

SHOWN_CHARACTERS = 200  # of a row that is told of

Judge = Callable[[Sequence[Check]], list[Verdict]]


class DataChecks:
    """The checks of one stream in one run. `then` is the command that goes on with it."""

    def __init__(self, lake: Lake, stream: Stream, record: RunRecord, then: str) -> None:
        self._lake = lake
        self._stream = stream
        self._record = record
        self._then = then
        # Of what is published all the same: those that it does not meet, by check.
        self._warnings: dict[str, list[Verdict]] = {}
        self.stopped: DataCheckError | None = None

    def refuse_wrong(self, table: Product) -> None:
        """SettingsError for a check that cannot be asked of the table's rows."""
        if self._stream.checks:
            table.refuse_wrong(self._stream.checks)

    def admit(
        self, judge: Judge, what: str, generation: int | None = None, batch_id: int | None = None
    ) -> None:
        """Ask all of rows that are about to be published, and record what they say.

        DataCheckError, when they are not to be: `what` would have been published.
        """
        if not self._stream.checks:
            return
        verdicts = judge(self._stream.checks)
        rows = [_row(verdict) for verdict in verdicts]
        known = {
            "run_id": self._record["run_id"],
            "stream": self._stream.name,
            "job": self._record["job"],
            "generation": generation,
            "batch_id": batch_id,
            "checked_at": datetime.now(UTC),
        }
        append_ops(self._lake, "data_checks", [known | row for row in rows])
        not_met = [verdict for verdict in verdicts if not verdict.is_met]
        if errors := [verdict for verdict in not_met if verdict.check.severity == "error"]:
            self._stop(errors, what)
        self._warn(not_met)

    def _stop(self, errors: Sequence[Verdict], what: str) -> None:
        name = self._stream.name
        told = "; ".join(map(_told, errors))
        way = (
            f'mend the function, or the check in include/streams/{name}.py (with severity="warning" such '
            "rows pass, with a finding); then go on with the same options (in Airflow clear the task)"
        )
        found = Finding(
            finding="data_check_failed",
            severity="error",
            count=sum(verdict.failing or 0 for verdict in errors) or None,
            detail=f"{told}. Nothing of {what} was published",
            action=f"{way}: `{self._then}`",
        )
        record_findings(self._lake, self._record["run_id"], name, findings=[found])
        self.stopped = DataCheckError(f"{name}: {found.detail}. To do: {way}", command=self._then)
        raise self.stopped

    def _warn(self, not_met: Sequence[Verdict]) -> None:
        """A finding for each check that was not met in the run so far: the newest says it all.

        Before the rows are published: of those that a kill has cut off behind that nobody asks
        again.
        """
        if not not_met:
            return
        for verdict in not_met:
            self._warnings.setdefault(verdict.check.name, []).append(verdict)
        found = [_warning(self._stream.name, verdicts) for verdicts in self._warnings.values()]
        record_findings(self._lake, self._record["run_id"], self._stream.name, findings=found)


def _row(verdict: Verdict) -> dict[str, object]:
    check = verdict.check
    return {
        "check_name": check.name,
        "severity": check.severity,
        "kind": "each_row" if check.each_row is not None else "together",
        "condition": check.condition,
        "rows": verdict.rows,
        "rows_failing": verdict.failing,
        "is_met": verdict.is_met,
        "examples": json.dumps(list(verdict.examples)) if verdict.examples else None,
    }


def _told(verdict: Verdict) -> str:
    name, all_rows = verdict.check.name, counted(verdict.rows, "row")
    condition = " ".join(verdict.check.condition.split())  # in one line
    if verdict.problem is not None:
        return f"check {name}: `{condition}` fails for rows of {all_rows}: {verdict.problem}"
    if verdict.failing is None:
        return f"check {name}: {all_rows} together do not meet `{condition}`"
    shown = ", ".join(example[:SHOWN_CHARACTERS] for example in verdict.examples)
    return f"check {name}: {verdict.failing:,} of {all_rows} do not meet `{condition}`, such as {shown}"


def _warning(stream: str, verdicts: Sequence[Verdict]) -> Finding:
    return Finding(
        finding="data_check_warning",
        severity="warning",
        count=sum(verdict.failing or 0 for verdict in verdicts) or None,
        detail=f"{_told(verdicts[-1])}. They are published all the same",
        action=f"look at these rows and who sends them; mend the function or the check in "
        f"include/streams/{stream}.py",
    )
