"""What a run or a check found that people should know: rows of `ops/findings`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.text_table import counted

# A finding of severity error fails the run or the Dag run that made it: a person is needed.
Severity = Literal["info", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")  # the worst first


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
    known: dict[str, Any] = {
        "run_id": run_id,
        "found_at": datetime.now(UTC),
        "subject": subject,
    }
    append_ops(lake, "findings", [known | asdict(finding) for finding in findings])


def finding_lines(rows: Iterable[Mapping[str, Any]], subject: str | None = None) -> Iterator[str]:
    """Rows of `ops/findings` for people: what each is, and what to do; `subject` goes without saying."""
    for row in rows:
        count = f" ({row['count']:,})" if row["count"] is not None else ""
        about = f" of {row['subject']}" if row.get("subject", subject) != subject else ""
        yield f"{row['severity']}: {row['finding']}{about}{count}: {row['detail']}"
        if row["action"]:
            yield f"  To do: {row['action']}"


def record_error(lake: Lake, run_id: str, subject: str, name: str, error: Exception) -> None:
    """Append an error that fails the run."""
    found = Finding(finding=name, severity="error", detail=str(error))
    record_findings(lake, run_id, subject, findings=[found])


def findings_of_run(batches: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """The findings of a run that committed these rows of `ops/batches`."""
    if not batches:
        return []
    found = []
    if late := sum(batch["rows_late"] for batch in batches):
        found.append(_late_rows(late, batches))
    if excluded := sum(batch["rows_excluded"] for batch in batches):
        found.append(
            Finding(
                finding="rows_before_initial_state",
                severity="info",
                count=excluded,
                detail="Rows before the initial state's as_of: it stands for them, so they are "
                "not folded",
            )
        )
    if kept := batches[-1]["kept_without_timeout"]:
        found.append(
            Finding(
                finding="kept_without_timeout",
                severity="info",
                count=kept,
                detail="Keys whose state has no timeout: only a new event will call the function for them "
                "again. Unless that is meant, remove() the state or set a timeout in each call",
            )
        )
    return found


def dead_letters_finding(
    stream: str, events: int, timeouts: int, first: datetime, last: datetime
) -> Finding:
    """That there are dead letters, at least one."""
    return Finding(
        finding="rows_dead_lettered",
        severity="warning",
        count=events + timeouts,
        detail=f"The state function failed for {counted(events, 'event')} and "
        f"{counted(timeouts, 'timeout')}: they are in dead_letters/{stream} with the error, and not in the table",
        event_time_from=first,
        event_time_to=last,
        action=f"look at dead_letters/{stream} and mend the function; then `./stateful reseed {stream} "
        "--recompute --apply` takes them in",
    )


def _late_rows(late: int, batches: Sequence[Mapping[str, Any]]) -> Finding:
    first = min(batch["late_from"] for batch in batches if batch["late_from"])
    last = max(batch["late_to"] for batch in batches if batch["late_to"])
    detail = (
        "Rows behind the watermark when they were ingested: in bronze, not in the table. "
        "docs/operations.md, Position and completeness, has the query that shows them"
    )
    return Finding(
        finding="late_rows",
        severity="warning",
        count=late,
        detail=detail,
        event_time_from=first,
        event_time_to=last,
    )
