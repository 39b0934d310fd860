"""What a stream's late rows still ask for: for the check after each run, and a recompute's report."""

from include.backfill.late_dates import (
    covers_of,
    dates_to_recompute,
    first_stale,
    late_finding,
    late_rows,
)
from include.findings import Finding
from include.generations import current_row
from include.lake import Lake
from include.streams import Stream


def find_late_dates(lake: Lake, stream: Stream) -> Finding | None:
    """Names the dates whose late rows no recompute has taken in, and what to enter to do so."""
    row = current_row(lake, stream.name)
    if row is None or not lake.is_delta_table(lake.bronze(stream.source)):
        return None
    covers = covers_of(lake, stream.name, row["output_mode"])
    dates = dates_to_recompute(late_rows(lake, stream), covers)
    return late_finding(stream, row["output_mode"], dates)


def lacks_late_rows(lake: Lake, stream: Stream) -> bool:
    """Whether the live state lacks late rows: only a reseed takes them in, no recompute does."""
    return first_stale(late_rows(lake, stream), covers_of(lake, stream.name, "update")) is not None


def what_else(lake: Lake, stream: Stream) -> str:
    """What a recompute of an interval has left to do, in words for a task log."""
    if found := find_late_dates(lake, stream):
        return f"{found.detail}: {found.action}"
    if lacks_late_rows(lake, stream):
        return (
            f"The live state of {stream.name} lacks late rows, and rows emitted after the interval "
            f"may, too: `make reseed STREAM={stream.name} APPLY=1`, or a backfill with the parameter "
            "promote (tick Override parameters on existing runs), takes them in"
        )
    return f"{stream.name} lacks no late rows"
