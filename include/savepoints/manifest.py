"""The manifest of savepoints, `ops/savepoints`: which there are, and what each one holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from include.fold.instants import MICROSECOND, micros_of
from include.lake.ops import append_ops, read_ops, update_ops
from include.lake.paths import Lake
from include.settings import SavepointRules


@dataclass(frozen=True, kw_only=True)
class Savepoint:
    """A savepoint whose rows are there: the columns of `ops/savepoints`, instants in microseconds."""

    savepoint_id: str
    stream: str
    until_us: int
    origin: str
    path: str  # below the lake
    keys: int
    checksum: str
    events: int
    bronze_id: str
    bronze_ingested_at_us: int | None  # of the newest row that it has read
    bronze_version: int  # read up to
    code: str | None
    state_schema: str
    created_at: datetime


def savepoints_of(lake: Lake, stream: str) -> list[Savepoint]:
    """The savepoints of `stream` that are there, by `until`; of the same one, the newest last."""
    rows = read_ops(lake, "savepoints", {"stream": stream}).to_pylist()
    rows.sort(key=lambda row: (row["until"], row["created_at"]))
    return [_of_row(row) for row in rows if row["deleted_at"] is None]


def _of_row(row: Mapping[str, Any]) -> Savepoint:
    read = row["bronze_ingested_at"]
    instants = {
        "until_us": micros_of(row["until"]),
        "bronze_ingested_at_us": None if read is None else micros_of(read),
    }
    named = {name: row[name] for name in Savepoint.__dataclass_fields__ if name not in instants}
    return Savepoint(**(named | instants))


def struck_off_at(lake: Lake, stream: str) -> dict[str, datetime | None]:
    """All savepoints of `stream` that ever were, and when each was struck off; None: never."""
    rows = read_ops(lake, "savepoints", {"stream": stream}).to_pylist()
    return {row["savepoint_id"]: row["deleted_at"] for row in rows}


def record_savepoint(lake: Lake, row: Mapping[str, Any]) -> None:
    """Append a row of `ops/savepoints`: from now on the savepoint exists."""
    append_ops(lake, "savepoints", [row])


def mark_deleted(lake: Lake, savepoint_ids: list[str]) -> None:
    """Say that the rows of these savepoints are about to be deleted: before they are."""
    now = datetime.now(UTC)
    rows = [{"savepoint_id": name, "deleted_at": now} for name in savepoint_ids]
    update_ops(lake, "savepoints", ["savepoint_id"], rows)


def is_due(rules: SavepointRules, until_us: int, savepoints: list[Savepoint]) -> bool:
    """Whether a run that has come to `until_us` is to write a savepoint.

    When it has passed a multiple of the cadence since the newest one, or when there is none.
    """
    if rules.cadence is None:
        return False
    newest_us = max((savepoint.until_us for savepoint in savepoints), default=None)
    cadence_us = rules.cadence // MICROSECOND
    return newest_us is None or until_us // cadence_us > newest_us // cadence_us
