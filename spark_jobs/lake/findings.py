"""What a run of a stream found that people should know: rows of `ops/findings`."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from include.lake import Lake
from include.ops import append_ops

Finding = dict[str, Any]


def findings_of_run(batches: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """The findings of a run that committed these rows of `ops/batches`."""
    if not batches:
        return []
    found = []
    if late := sum(batch["rows_late"] for batch in batches):
        found.append(_late_rows(late, batches))
    if excluded := sum(batch["rows_excluded"] for batch in batches):
        found.append(
            _finding(
                "rows_before_initial_state",
                "info",
                excluded,
                "Rows before the initial state's as_of: it stands for them, so they are not folded",
            )
        )
    if kept := batches[-1]["kept_without_timeout"]:
        found.append(
            _finding(
                "kept_without_timeout",
                "info",
                kept,
                "Keys whose state has no timeout: only a new event will call the function for them "
                "again. Unless that is meant, remove() the state or set a timeout in each call",
            )
        )
    return found


def _late_rows(late: int, batches: Sequence[Mapping[str, Any]]) -> Finding:
    first = min(batch["late_from"] for batch in batches if batch["late_from"])
    last = max(batch["late_to"] for batch in batches if batch["late_to"])
    detail = (
        "Rows behind the watermark when they were ingested: in bronze, not in the table. "
        "The README, Position and completeness, has the query that shows them"
    )
    return _finding("late_rows", "warning", late, detail) | {
        "event_time_from": first,
        "event_time_to": last,
    }


def _finding(name: str, severity: str, count: int | None, detail: str) -> Finding:
    return {"finding": name, "severity": severity, "count": count, "detail": detail}


def record_findings(lake: Lake, run_id: str, subject: str, findings: Sequence[Finding]) -> None:
    """Append `findings` about a source or stream to `ops/findings`."""
    if findings:
        known = {"run_id": run_id, "found_at": datetime.now(UTC), "subject": subject}
        append_ops(lake, "findings", [known | finding for finding in findings])


def record_error(lake: Lake, run_id: str, subject: str, name: str, error: Exception) -> None:
    """Append an error that fails the run."""
    record_findings(lake, run_id, subject, [_finding(name, "error", None, str(error))])
