"""What an ingestion of signals came to, for tests: its tables, read without a JVM."""

from dataclasses import replace
from typing import Any

from deltalake import DeltaTable

from include.fold.admission import micros_of
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.registry import source_named
from include.settings import Source

SIGNALS = source_named("signals")
SPLIT_ALWAYS = 1  # commit_bytes: every file is a commit of its own

Row = dict[str, Any]


def one_file_a_commit(source: Source = SIGNALS) -> Source:
    return replace(source, commit_bytes=SPLIT_ALWAYS)


def bronze_of(lake: Lake) -> list[Row]:
    """The rows of bronze, in an order that does not depend on files."""
    return rows_of(lake.bronze("signals"))


def quarantine_of(lake: Lake) -> list[Row]:
    """The rows of quarantine, as they landed."""
    rows = rows_of(lake.quarantine("signals"))
    return sorted(rows, key=lambda row: (row["source_file"], row["row_number"]))


def rows_of(path: str) -> list[Row]:
    """All rows of a table, sorted."""
    return sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=str)


def events_of(lake: Lake) -> list[tuple[Any, ...]]:
    return sorted(
        (
            row["device_id"],
            row["value"],
            micros_of(row["event_time"]),
            row["event_date"],
            row["source_file"],
        )
        for row in bronze_of(lake)
    )


def values_of(lake: Lake) -> list[tuple[str, int]]:
    return sorted(
        (row["source_file"], row["value"]) for row in bronze_of(lake) if not row["is_heartbeat"]
    )


def other_findings(lake: Lake) -> list[Row]:
    """All but that rows were quarantined, as nearly each batch of a few rows that has a bad one says."""
    rows = read_ops(lake, "findings").to_pylist()
    return [row for row in rows if row["finding"] != "rows_quarantined"]
