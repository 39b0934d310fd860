"""What a run of a stream tells of what it has done: late rows and dead letters."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from include.catalogue import FINDINGS
from include.lake.findings import Finding
from include.text_table import counted


def findings_of_run(stream: str, batches: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """The findings of a run that committed these rows of `ops/batches`."""
    found = []
    if late := sum(batch["rows_late"] for batch in batches):
        found.append(
            FINDINGS["late_rows"].found(
                stream,
                "behind the watermark when they were ingested: in bronze, not in the table. "
                "docs/operations.md, Position and completeness, has the query that shows them",
                count=late,
                event_time_from=min(b["late_from"] for b in batches if b["late_from"]),
                event_time_to=max(b["late_to"] for b in batches if b["late_to"]),
            )
        )
    if excluded := sum(batch["rows_excluded"] for batch in batches):
        figure = FINDINGS["rows_before_initial_state"]
        found.append(figure.found(stream, figure.help, count=excluded))
    return found


def dead_letters_finding(
    stream: str, events: int, timeouts: int, first: datetime, last: datetime
) -> Finding:
    """That there are dead letters, at least one."""
    return FINDINGS["rows_dead_lettered"].found(
        stream,
        f"the function failed for {counted(events, 'event')} and {counted(timeouts, 'timeout')}: "
        f"they are in dead_letters/{stream} with the error, and not in the table",
        count=events + timeouts,
        event_time_from=first,
        event_time_to=last,
    )
