"""What a run of a stream found that people should know, from its batches."""

from collections.abc import Mapping, Sequence
from typing import Any

from include.findings import Finding


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


def _late_rows(late: int, batches: Sequence[Mapping[str, Any]]) -> Finding:
    first = min(batch["late_from"] for batch in batches if batch["late_from"])
    last = max(batch["late_to"] for batch in batches if batch["late_to"])
    detail = (
        "Rows behind the watermark when they were ingested: in bronze, not in the table. "
        "The README, Position and completeness, has the query that shows them"
    )
    return Finding(
        finding="late_rows",
        severity="warning",
        count=late,
        detail=detail,
        event_time_from=first,
        event_time_to=last,
    )
