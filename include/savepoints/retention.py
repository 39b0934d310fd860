"""Which savepoints may go: the rules of a stream, less what is still needed."""

from collections.abc import Collection, Sequence

from include.generations import current_row, open_intent
from include.lake import Lake
from include.savepoints.manifest import MICROSECOND, Savepoint
from include.streams import SavepointRules


def needed_ids(lake: Lake, stream: str) -> set[str]:
    """What the current generation began with, and what an open reseed begins with."""
    rows = [current_row(lake, stream), open_intent(lake, stream)]
    names = ("seed_savepoint", "base_savepoint")
    return {row[name] for row in rows if row is not None for name in names if row[name]}


def expired(
    savepoints: Sequence[Savepoint], rules: SavepointRules, needed: Collection[str]
) -> list[Savepoint]:
    """Those that are beyond the rules' age or number and not `needed`, by `until`."""
    if not savepoints:
        return []
    newest_first = sorted(savepoints, key=lambda savepoint: savepoint.until_us, reverse=True)
    horizon_us = horizon_of(savepoints, rules)
    return [
        savepoint
        for position, savepoint in reversed(list(enumerate(newest_first)))
        if (position >= rules.keep or savepoint.until_us < horizon_us)
        and savepoint.savepoint_id not in needed
    ]


def spare_a_base(
    candidates: Sequence[Savepoint], clean: Collection[str], kept_from_us: int
) -> list[Savepoint]:
    """The candidates but for the newest clean one at or before the oldest instant that is kept:
    without it a backfill of that instant would replay from the beginning."""
    bases = [sp for sp in candidates if sp.savepoint_id in clean and sp.until_us <= kept_from_us]
    spared = max(bases, key=lambda savepoint: savepoint.until_us, default=None)
    return [savepoint for savepoint in candidates if savepoint is not spared]


def horizon_of(savepoints: Sequence[Savepoint], rules: SavepointRules) -> int:
    """The oldest instant that is kept: so long before the newest savepoint."""
    newest_us = max(savepoint.until_us for savepoint in savepoints)
    return newest_us - rules.keep_for // MICROSECOND
