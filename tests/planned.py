"""Batches of signals, planned and done at a known time, for tests of the position."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from include.lake.paths import Lake
from include.landing.arrivals import Listed
from include.landing.ingest_position import Batch, finish, next_batch
from include.landing.landed_content import landed_files
from tests.ingested import SIGNALS

NOW = datetime(2026, 3, 1, 12, 0, 0, 1999, UTC)


def plan(lake: Lake, **changes: Any) -> Batch | None:
    """The next batch of what is in landing now."""
    return next_batch(lake, replace(SIGNALS, **changes), Listed(landed_files(lake, "signals")), NOW)


def take(lake: Lake, **changes: Any) -> tuple[str, ...]:
    """The files of the next batch, which is done at once."""
    batch = plan(lake, **changes)
    if batch is None:
        return ()
    finish(lake, "signals", batch, 0, 0)
    return batch.files
