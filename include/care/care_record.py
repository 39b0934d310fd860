"""The tables' figures before and after their care, `ops/table_sizes`."""

from collections import Counter
from datetime import UTC, datetime
from typing import Literal

from include.care.table_figures import TableFigures
from include.lake.ops import append_ops, not_ahead, read_ops
from include.lake.paths import Lake


def record_sizes(
    lake: Lake,
    run_id: str | None,
    table: str,
    occasion: Literal["before", "after"],
    figures: TableFigures,
    bytes_rewritten: int | None = None,
    files_deleted: int | None = None,
) -> None:
    """Append a row to `ops/table_sizes`."""
    row = {
        "run_id": run_id,
        "measured_at": datetime.now(UTC),
        "table": table,
        "occasion": occasion,
        "version": figures.version,
        "files": figures.files,
        "bytes": figures.bytes,
        "small_files": figures.small_files,
        "files_on_disk": figures.files_on_disk,
        "bytes_on_disk": figures.bytes_on_disk,
        "bytes_rewritten": bytes_rewritten,
        "files_deleted": files_deleted,
    }
    append_ops(lake, "table_sizes", [row])


def bytes_rewritten_since(lake: Lake, instant: datetime) -> dict[str, int]:
    """What OPTIMIZE has rewritten since `instant`, by table; one that was killed is not counted."""
    since, before = ("measured_at", instant), ("measured_at", not_ahead())
    rows = read_ops(lake, "table_sizes", {"occasion": "after"}, since=since, before=before)
    spent: Counter[str] = Counter()
    for row in rows.to_pylist():
        spent[row["table"]] += row["bytes_rewritten"] or 0
    return dict(spent)
