"""What a run or a check found that people should know: rows of `ops/findings`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from include.lake.ops import append_ops
from include.lake.paths import Lake

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
