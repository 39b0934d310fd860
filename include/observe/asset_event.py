"""What the event of a stream's Asset tells its readers, once: of runs, or of a backfill's interval."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from include.lake.generations import read_generations
from include.lake.ops import read_ops, update_ops
from include.lake.paths import Lake
from include.lake.stream_result import (
    RECOMPUTE,
    RESEED,
    complete_until,
    replaced_by,
    succeeded_runs,
)
from include.maintain.check_checkpoint import measured_bytes


def untold(lake: Lake, stream: str, dag_run_id: str, is_of_interval: bool) -> list[dict[str, Any]]:
    """Of the drains or the recomputes and reseeds of a Dag run, what no event has told, in order."""
    rows = (replaced_by if is_of_interval else succeeded_runs)(lake, stream, dag_run_id)
    return [row for row in rows if row["told_at"] is None]


def mark_told(lake: Lake, stream: str, dag_run_id: str, is_of_interval: bool) -> None:
    """That the Asset's event has told what was `untold`: not again, if the Dag run is cleared."""
    rows, now = untold(lake, stream, dag_run_id, is_of_interval), datetime.now(UTC)
    told = [{"run_id": row["run_id"], "told_at": now} for row in rows]
    update_ops(lake, "runs", ["run_id"], told)


def asset_extra(lake: Lake, stream: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the stream's Asset event tells its readers of `runs`, in order; plain JSON values.

    Rows and findings are those of all of them; the rest is as it is now, also where they are old
    and others have come since.
    """
    until = complete_until(lake, stream)
    return {
        "run_id": runs[-1]["run_id"],
        "rows": sum(run["rows_out"] or 0 for run in runs),
        "rows_late": sum(run["rows_late"] or 0 for run in runs),
        "rows_duplicate": sum(run["rows_duplicate"] or 0 for run in runs),
        "complete_until": until and until.isoformat(),
        "generation": read_generations(lake, stream).number,
        "state_bytes": measured_bytes(lake, stream=stream, part="state"),
        "findings": [
            {"finding": row["finding"], "severity": row["severity"], "detail": row["detail"]}
            for run in runs
            for row in read_ops(lake, "findings", {"run_id": run["run_id"]}).to_pylist()
        ],
    }


def recompute_extra(lake: Lake, stream: str, dag_run_id: str) -> dict[str, Any] | None:
    """What the Asset event of a backfill's Dag run tells; None when that is nothing new.

    Of its recompute, if it made one, `interval` is the start and the end that it is before, beside counts
    of rows. `promoted_to` is the generation, if it was promoted.
    """
    rows = replaced_by(lake, stream, dag_run_id)
    if not untold(lake, stream, dag_run_id, is_of_interval=True):
        return None
    until = complete_until(lake, stream)
    extra = {"run_id": rows[-1]["run_id"], "complete_until": until and until.isoformat()}
    if (row := next((row for row in reversed(rows) if row["job"] == RECOMPUTE), None)) is not None:
        extra |= {"run_id": row["run_id"], "savepoint": row["savepoint_id"]}
        extra |= {"interval": [row["start"].isoformat(), row["until"].isoformat()]}
        names = {"rows_read": "rows_in", "rows_before": "rows_before", "rows_after": "rows_out"}
        extra |= {name: row[column] for name, column in names.items()}
    if rows[-1]["job"] == RESEED:
        extra |= {"promoted_to": rows[-1]["generation"]}
    return extra
