"""What a stream's late rows still ask for: for the check after each run, and a recompute's report."""

from collections.abc import Sequence

from include.backfill.late_dates import (
    LateRows,
    covers_of,
    dates_to_recompute,
    first_stale,
    late_finding,
    late_rows,
    promote_text,
)
from include.findings import Finding
from include.generations import current_row
from include.lake import Lake
from include.streams import Stream


def find_late_dates(lake: Lake, stream: Stream) -> Finding | None:
    """Names the dates whose late rows no recompute has taken in, and what to enter to do so."""
    if not lake.is_delta_table(lake.bronze(stream.source)):
        return None
    return _late_dates(lake, stream, late_rows(lake, stream))


def lacks_late_rows(lake: Lake, stream: Stream) -> bool:
    """Whether the live state lacks late rows: only a reseed takes them in, no recompute does."""
    return _state_lacks(lake, stream, late_rows(lake, stream))


def what_else(lake: Lake, stream: Stream) -> str:
    """What a recompute of an interval has left to do, in words for a task log."""
    late = late_rows(lake, stream)
    if found := _late_dates(lake, stream, late):
        return f"{found.detail}: {found.action}"
    if _state_lacks(lake, stream, late):
        return (
            f"The live state of {stream.name} lacks late rows, and rows emitted after the interval "
            f"may, too: {promote_text(stream)} takes them in"
        )
    return f"{stream.name} lacks no late rows"


def _late_dates(lake: Lake, stream: Stream, late: Sequence[LateRows]) -> Finding | None:
    row = current_row(lake, stream.name)
    if row is None:
        return None
    covers = covers_of(lake, stream.name, row["output_mode"])
    return late_finding(stream, row["output_mode"], dates_to_recompute(late, covers))


def _state_lacks(lake: Lake, stream: Stream, late: Sequence[LateRows]) -> bool:
    # Of an update table only reseeds count: it shows the state.
    return first_stale(late, covers_of(lake, stream.name, "update")) is not None
