"""What a run or a check found that people should know: rows of `ops/findings`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from include.lake.ops import append_ops
from include.lake.paths import Lake

# A finding of severity error fails the run or the Dag run that made it: a person is needed.
Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing found; the fields are columns of `ops/findings`."""

    finding: str  # a stable word, such as late_rows
    severity: Severity
    detail: str
    count: int | None = None
    event_time_from: datetime | None = None
    event_time_to: datetime | None = None
    figure: float | None = None
    limit: float | None = None
    unit: str | None = None
    action: str | None = None


def record_findings(
    lake: Lake, run_id: str | None, subject: str, findings: Sequence[Finding]
) -> None:
    """Append `findings` about a source or stream to `ops/findings`."""
    if not findings:
        return
    known: dict[str, Any] = {
        "run_id": run_id,
        "found_at": datetime.now(UTC),
        "subject": subject,
    }
    append_ops(lake, "findings", [known | asdict(finding) for finding in findings])


def record_error(lake: Lake, run_id: str, subject: str, name: str, error: Exception) -> None:
    """Append an error that fails the run."""
    found = Finding(finding=name, severity="error", detail=str(error))
    record_findings(lake, run_id, subject, [found])
