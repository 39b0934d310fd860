"""Signals with heartbeats, for tests: how their bronze looks after each commit."""

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from deltalake import DeltaTable

from include.fold.admission import micros_of
from include.ingest.ingest_log import Ingestion
from include.ingest.watermark import SourceWatermark
from include.lake.paths import Lake
from include.registry import source_named
from include.settings import Source
from tests.ingested import bronze_of

HEARTBEAT_DELAY = timedelta(minutes=1)
SIGNALS = replace(source_named("signals"), heartbeat_delay=HEARTBEAT_DELAY, max_clock_step=None)
NO_HEARTBEAT = replace(SIGNALS, heartbeat_delay=None)
HOUR = timedelta(hours=1)


def in_order(lake: Lake) -> list[SimpleNamespace]:
    """The rows of bronze by their ingestion, all instants in microseconds."""
    rows = [
        SimpleNamespace(**{name: _plain(v) for name, v in row.items()}) for row in bronze_of(lake)
    ]
    return sorted(rows, key=lambda row: (row.ingested_at, row.event_time))


def _plain(value: Any) -> Any:
    return micros_of(value) if isinstance(value, datetime) else value


def watermark_of(lake: Lake, source: Source = SIGNALS) -> SourceWatermark:
    return Ingestion(lake, source).watermark()


def version(lake: Lake) -> int:
    return DeltaTable(lake.bronze("signals")).version()


def at(end: datetime) -> dict[str, Any]:
    """A call of `write_heartbeat` by a Dag run that came just when its interval ended."""
    return {"interval_end": end, "now": end}
