"""A stream's checks (`checks=` of its entry): asked of rows before these are published.

Of rows that are in the table already, as those of a batch that a kill has cut off behind its write,
nothing is asked again: to refuse them would take nothing back.
"""

from collections.abc import Callable, Sequence

from include.catalogue import FINDINGS, Figure
from include.job import RunRecord
from include.lake.findings import Finding, record_findings
from include.lake.paths import Lake
from include.settings import Check, DataCheckError, Stream, Verdict
from include.text_table import counted
from spark_jobs.tables.product import Product

STOPPED, WARNED = FINDINGS["data_check_failed"], FINDINGS["data_check_warning"]
SHOWN_CHARACTERS = 200  # of a row that is told of

Judge = Callable[[Sequence[Check]], list[Verdict]]


class DataChecks:
    """The checks of one stream in one run; `then` is the command that goes on with it."""

    def __init__(self, lake: Lake, stream: Stream, record: RunRecord, then: str) -> None:
        self._lake = lake
        self._stream = stream
        self._record = record
        self._then = then
        self.stopped: DataCheckError | None = None

    def refuse_wrong(self, table: Product) -> None:
        """SettingsError for a check that cannot be asked of the table's rows."""
        if self._stream.checks:
            table.refuse_wrong(self._stream.checks)

    def admit(self, judge: Judge, what: str) -> None:
        """Ask all of rows that are about to be published; DataCheckError if they are not to be."""
        if not self._stream.checks:
            return
        name, run_id = self._stream.name, self._record["run_id"]
        not_met = [verdict for verdict in judge(self._stream.checks) if not verdict.is_met]
        if errors := [verdict for verdict in not_met if verdict.check.severity == "error"]:
            found = self._found(STOPPED, errors, f"nothing of {what} was published")
            record_findings(self._lake, run_id, name, findings=[found])
            said = f"{name}: {found.detail}. To do: {found.action}"
            self.stopped = DataCheckError(said, command=self._then)
            raise self.stopped
        # Before the rows are published: of those that a kill has cut off behind that nobody asks
        # again.
        warnings = [
            self._found(WARNED, [verdict], f"{what} was published all the same")
            for verdict in not_met
        ]
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
