"""The `extra` of an event of a stream's Asset, as plain JSON."""

from datetime import UTC, datetime, timedelta
from typing import Any

from include.lake.generations import complete_until, read_generations
from include.lake.ops import REBUILD, RESTATE, replaced_by, succeeded_runs
from include.lake.paths import Lake
from include.observe.stream_line import WINDOW_DAYS, Recorded
from include.settings import Stream


def asset_extra(lake: Lake, stream: Stream, dag_run_id: str) -> dict[str, Any] | None:
    """The extra for the drains of a Dag run, with the sum of their rows; None if there were none.

    All else is as of now, after any later runs.
    """
    runs = succeeded_runs(lake, stream.name, dag_run_id)
    if not runs:
        return None
    recorded = Recorded(lake, datetime.now(UTC) - timedelta(days=WINDOW_DAYS), stream)
    measured = recorded.measured.get(stream.name)
    return complete_extra(lake, stream) | {
        "run_id": runs[-1]["run_id"],
        "rows": sum(run["rows_out"] or 0 for run in runs),
        "rows_late": sum(run["rows_late"] or 0 for run in runs),
        "rows_duplicate": sum(run["rows_duplicate"] or 0 for run in runs),
        "generation": read_generations(lake, stream.name).number,
        "state_bytes": measured and measured.state_bytes,
        "findings": [
            {name: row[name] for name in ("subject", "finding", "severity", "detail", "action")}
            for row in recorded.open_findings(stream)
        ],
    }


def restate_extra(lake: Lake, stream: Stream, dag_run_id: str) -> dict[str, Any] | None:
    """The extra for a backfill's Dag run: `interval` (start, exclusive end) and counts of rows of its
    restatement, `rebuilt_generation` of a rebuild that followed; None if it did neither.
    """
    rows = replaced_by(lake, stream.name, dag_run_id)
    if not rows:
        return None
    extra = complete_extra(lake, stream) | {"run_id": rows[-1]["run_id"]}
    if (row := next((row for row in reversed(rows) if row["job"] == RESTATE), None)) is not None:
        extra |= {"run_id": row["run_id"], "savepoint": row["savepoint_id"]}
        extra |= {"interval": [row["start"].isoformat(), row["until"].isoformat()]}
        extra |= {"ended_at": row["ended_at"].isoformat()}
        names = {"rows_read": "rows_in", "rows_before": "rows_before", "rows_after": "rows_out"}
        extra |= {name: row[column] for name, column in names.items()}
    if rows[-1]["job"] == REBUILD:
        extra |= {"rebuilt_generation": rows[-1]["generation"]}
    return extra


def complete_extra(lake: Lake, stream: Stream) -> dict[str, Any]:
    """The part of the extra that each event has."""
    until = complete_until(lake, stream.name)
    return {"complete_until": until and until.isoformat()}
