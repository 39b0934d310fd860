"""Whether bronze and quarantine of a source are what ingestion has made them (table_seal)."""

import json
from collections.abc import Mapping
from typing import Any

from include.lake.paths import Lake
from include.lake.table_seal import Actions, IsOurs, is_sealed, reseal, seal, what_changed
from include.landing.position import read_query_id

# All our commits to bronze name its clock (include/landing/clock.py).
WATERMARK_KEY = "commit_watermark_us"
# What a re-ingestion's commits say of themselves, in bronze and in quarantine.
REINGESTED_KEY = "reingested"


def tables_of(source: str) -> tuple[str, str]:
    """Bronze and quarantine of a source, below the lake."""
    return f"bronze/{source}", f"quarantine/{source}"


def app_prefix(source: str) -> str:
    """With what the names of all writes of the source's batches begin, for `append_once`."""
    return f"ingest/{source}/"


def ours(source: str) -> IsOurs:
    """The commits of batches, clock rows, still rows and re-ingestions of the source."""

    def is_ours(commit_info: Mapping[str, Any], actions: Actions) -> bool:
        if any(a.get("txn", {}).get("appId", "").startswith(app_prefix(source)) for a in actions):
            return True
        try:
            metadata = json.loads(commit_info.get("userMetadata") or "{}")
        except ValueError:
            return False
        return isinstance(metadata, dict) and bool(
            metadata.keys() & {WATERMARK_KEY, REINGESTED_KEY}
        )

    return is_ours


def how_tables_changed(lake: Lake, source: str) -> str | None:
    """What bronze or quarantine lost, or got from others, in one sentence; None when nothing.

    Without an ingest checkpoint everything begins anew, so there is nothing to hold them against.
    """
    if read_query_id(lake, source) is None:
        return None
    told = (what_changed(lake, table, ours(source)) for table in tables_of(source))
    return next((change for change in told if change), None)


def seal_tables(lake: Lake, source: str) -> None:
    """Seal both where a commit came after their seals; to be called when nothing has changed."""
    for table in tables_of(source):
        if not is_sealed(lake, table):
            seal(lake, table)


def reseal_table(lake: Lake, source: str, table: str) -> None:
    """Seal one of both again, after a commit by a job that does not ingest."""
    reseal(lake, table, ours(source))
