"""Which savepoints may go: the rules of a stream, less what is still needed.

And what may go with them: rows in the tables of savepoints that belong to none.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from include.fold.instants import MICROSECOND
from include.lake.generations import Generations
from include.lake.paths import Lake
from include.savepoints.manifest import Savepoint, struck_off_at
from include.settings import SavepointRules

# One is struck off when it proves damaged, too: time to look at its rows; or to put a manifest back.
STRUCK_OFF_KEPT = timedelta(days=7)


def needed_ids(generations: Generations) -> set[str]:
    """What the current generation began with, and what an open reseed begins with."""
    rows = [generations.current, generations.intent]
    names = ("seed_savepoint", "base_savepoint")
    return {row[name] for row in rows if row is not None for name in names if row[name]}


def expired(
    savepoints: Sequence[Savepoint], rules: SavepointRules, needed: Collection[str]
) -> list[Savepoint]:
    """Those that are beyond the rules' age or number and not `needed`, by `until`."""
    kept = _kept_by_rules(savepoints, rules) + _of_open_backfills(savepoints, rules)
    spared = {savepoint.savepoint_id for savepoint in kept} | set(needed)
    by_until = sorted(savepoints, key=lambda savepoint: savepoint.until_us)
    return [savepoint for savepoint in by_until if savepoint.savepoint_id not in spared]


def spare_a_base(
    candidates: Sequence[Savepoint], clean: Collection[str], kept_from_us: int
) -> list[Savepoint]:
    """The candidates but for the newest clean one at or before the oldest instant that is kept:
    without it a backfill of that instant would replay from the beginning."""
    bases = [sp for sp in candidates if sp.savepoint_id in clean and sp.until_us <= kept_from_us]
    spared = max(bases, key=lambda savepoint: savepoint.until_us, default=None)
    return [savepoint for savepoint in candidates if savepoint is not spared]


def oldest_kept_us(savepoints: Sequence[Savepoint], rules: SavepointRules) -> int:
    """The oldest instant that the rules keep; what is kept for other reasons may be older.

    `savepoints` are those there are, and not none.
    """
    return min(savepoint.until_us for savepoint in _kept_by_rules(savepoints, rules))


def _kept_by_rules(savepoints: Sequence[Savepoint], rules: SavepointRules) -> list[Savepoint]:
    newest_first = sorted(savepoints, key=lambda savepoint: savepoint.until_us, reverse=True)
    if not newest_first:
        return []
    horizon_us = newest_first[0].until_us - rules.keep_for // MICROSECOND
    return [sp for sp in newest_first[: rules.keep] if sp.until_us >= horizon_us]


def _of_open_backfills(savepoints: Sequence[Savepoint], rules: SavepointRules) -> list[Savepoint]:
    """Which backfills are open, only Airflow knows; but theirs are the recomputes of late."""
    newest = max((savepoint.created_at for savepoint in savepoints), default=None)
    return [
        savepoint
        for savepoint in savepoints
        if newest is not None
        and savepoint.origin == "recompute"
        and savepoint.created_at >= newest - rules.keep_recomputed
    ]


def left_over_ids(lake: Lake, stream: str, table: DeltaTable, now: datetime) -> list[str]:
    """Whose rows are in a table of savepoints of `stream`, and nobody will ever read.

    Of a savepoint that was struck off long ago, and of one that was written long ago and is not in
    the manifest: it was cut off, or the manifest was lost since, and may be put back until then.
    """
    struck_off = struck_off_at(lake, stream)
    if not struck_off:
        return []  # it is the manifest that is gone, and may be put back
    files = pa.table(table.get_add_actions(flatten=True)).group_by("partition.savepoint_id")
    return sorted(
        row["partition.savepoint_id"]
        for row in files.aggregate([("modification_time", "max")]).to_pylist()
        if _is_over(struck_off.get(row["partition.savepoint_id"], _written_at(row)), now)
    )


def _written_at(row: Mapping[str, Any]) -> datetime:
    return datetime.fromtimestamp(row["modification_time_max"] / 1000, UTC)


def _is_over(struck_off: datetime | None, now: datetime) -> bool:
    return struck_off is not None and struck_off <= now - STRUCK_OFF_KEPT
