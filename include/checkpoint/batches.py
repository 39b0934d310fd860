"""The record of a stream's batches, `ops/batches`: read back, and completed after a run."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from include.checkpoint.position import settled_watermark_ms
from include.fold.admission import EPOCH, MICROSECOND, US_PER_MS, until_us
from include.lake.generations import is_reseeded, read_generations
from include.lake.ops import newest_row, read_ops, update_ops
from include.lake.paths import Lake

# Columns of ops/batches that add up others, from a generation's first batch on.
TOTALS = {
    "total_in": "rows_in",
    "total_folded": "rows_folded",
    "total_late": "rows_late",
    "total_excluded": "rows_excluded",
    "total_duplicate": "rows_duplicate",
}
BATCH_KEY = ("stream", "generation", "batch_id")


def last_batch(
    lake: Lake, stream: str, generation: int, before: int | None = None
) -> dict[str, Any] | None:
    """The newest recorded batch, or the newest below the id `before`."""
    rows = read_ops(lake, "batches", {"stream": stream, "generation": generation})
    if before is not None:
        rows = rows.filter(pc.less(rows["batch_id"], before))
    return newest_row(rows, "batch_id")


def running_totals(
    lake: Lake, stream: str, generation: int, newest: Mapping[str, Any] | None
) -> dict[str, int]:
    """The TOTALS up to and with the batch `newest`; those of the generation's seed for None."""
    if newest is None:
        seeded = seed_levels(lake, stream, generation)
        return {total: seeded[total] for total in TOTALS}
    return {total: newest[total] for total in TOTALS}


def seed_levels(lake: Lake, stream: str, generation: int) -> dict[str, int]:
    """The TOTALS, and `rows_pending`, before a generation's first batch.

    0 but for a reseeded one: its seed stands for bronze rows, and brings some that wait.
    """
    row = next(
        (r for r in read_generations(lake, stream).rows if r["generation"] == generation), None
    )
    if not is_reseeded(row) or row is None:
        return {**dict.fromkeys(TOTALS, 0), "rows_pending": 0}
    folded, excluded, pending = row["seed_events"], row["seed_excluded"], row["seed_pending"]
    return {
        "total_in": folded + excluded + pending,
        "total_folded": folded,
        "total_late": 0,
        "total_excluded": excluded,
        "total_duplicate": 0,  # among the folded ones
        "rows_pending": pending,
    }


def complete_until(lake: Lake, stream: str, generation: int) -> datetime | None:
    """The instant before which the table has everything; None when nothing is settled."""
    watermark_ms = settled_watermark_ms(lake, lake.checkpoint(stream, generation))
    if watermark_ms is None:
        return None
    return EPOCH + until_us(watermark_ms * US_PER_MS) * MICROSECOND


def record_progress(
    lake: Lake, stream: str, generation: int, measured: Sequence[Mapping[str, Any]]
) -> None:
    """Add what the engine measured of each batch to the run's rows of `ops/batches`.

    Separate from the counts, which must be there even if the run is killed before this.
    """
    rows = [{"stream": stream, "generation": generation, **batch} for batch in measured]
    update_ops(lake, "batches", BATCH_KEY, rows)
