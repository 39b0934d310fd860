"""The last recovery drill of a stream, as `ops/runs` has it, and what people should know of it."""

from collections.abc import Mapping
from typing import Any

from include.lake.findings import Finding
from include.lake.ops import newest_row, not_ahead, read_ops
from include.lake.paths import Lake
from include.settings import Stream

DRILL = "recovery_drill"  # the job, in ops/runs
COLUMNS = ("started_at", "ended_at", "outcome", "error", "savepoint_id", "is_equal", "rows_out")


def last_drill(lake: Lake, stream: str) -> Mapping[str, Any] | None:
    """COLUMNS of the newest drill of `stream`; None before the first."""
    where = {"job": DRILL, "subject": stream}
    rows = read_ops(lake, "runs", where, COLUMNS, before=("ended_at", not_ahead()))
    return newest_row(rows, "ended_at")


def drill_findings(lake: Lake, stream: Stream) -> list[Finding]:
    """A warning for as long as the last drill has not shown that restoring works."""
    drill = last_drill(lake, stream.name)
    if drill is None or drill["outcome"] == "succeeded":
        return []
    return [
        Finding(
            finding="drill_failed",
            severity="warning",
            detail=f"the recovery drill of {drill['ended_at']:%F %R} UTC: {drill['error']}",
            action="do not count on a restore until that is understood; "
            f"`./stateful drill {stream.name}` tries again",
        )
    ]
