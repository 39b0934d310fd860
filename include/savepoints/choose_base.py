"""The savepoint that a replay begins with: a clean one, or none; and which savepoints may go.

A savepoint is clean when it holds all events of bronze before its instant, and was made by the
code of now. Live ones stop being clean when rows come late, recomputed ones when still later
rows arrive: so it is counted each time, and all clean ones give the same result.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from include.fold.admission import MICROSECOND
from include.lake.generations import GenerationRow, Generations
from include.savepoints.bronze_pin import BronzePin, count_before, has_commit
from include.savepoints.manifest import (
    Savepoint,
    StreamIdentity,
    code_of,
    mapped_lineage,
    serves,
)
from include.settings import SavepointRules


@dataclass(frozen=True)
class Base:
    """Where a replay begins. Without a savepoint: with the initial state, or with nothing."""

    savepoint: Savepoint | None
    until_us: int | None  # bronze rows from here on are replayed; None: all
    events: int  # bronze rows that it stands for
    mapped: bool = False  # it is of an older state schema: its states are mapped to the new one

    def lineage(self, code: str) -> str:
        """What `code` makes from here on goes by this name; see `manifest.py`."""
        if self.savepoint is None:
            return code_of(code)
        return mapped_lineage(code, self.savepoint.savepoint_id) if self.mapped else code


def clean_savepoints(
    savepoints: Sequence[Savepoint], identity: StreamIdentity, pin: BronzePin
) -> list[Savepoint]:
    """Those of `savepoints` that hold all that the pinned bronze has before them."""
    ours = [savepoint for savepoint in savepoints if serves(savepoint.code, identity.code)]
    return _holding_all(ours, identity, pin)


def _holding_all(
    savepoints: Sequence[Savepoint], identity: StreamIdentity, pin: BronzePin
) -> list[Savepoint]:
    since_us = identity.since_us
    # One of before the initial state's instant knows no more than that, and a replay from there
    # would fold rows that it stands for.
    ours = [
        savepoint
        for savepoint in savepoints
        if is_of(savepoint, pin) and (since_us is None or savepoint.until_us >= since_us)
    ]
    cutoffs = [savepoint.until_us for savepoint in ours]
    counts = count_before(pin, identity.time_column, since_us, cutoffs_us=cutoffs)
    return [sp for sp, count in zip(ours, counts, strict=True) if sp.events == count]


def choose_base(
    savepoints: Sequence[Savepoint], identity: StreamIdentity, pin: BronzePin, at_most_us: int
) -> Base:
    """The clean savepoint with the largest `until` that is not after `at_most_us`."""
    ours = [savepoint for savepoint in savepoints if serves(savepoint.code, identity.code)]
    best = newest_holding_all(ours, identity, pin, at_most_us)
    if best is None:
        return Base(None, identity.since_us, 0)
    return Base(best, best.until_us, best.events)


def newest_holding_all(
    savepoints: Sequence[Savepoint], identity: StreamIdentity, pin: BronzePin, at_most_us: int
) -> Savepoint | None:
    """The newest by its `until` that holds all, and whose rows bronze has."""
    early = [savepoint for savepoint in savepoints if savepoint.until_us <= at_most_us]
    found = sorted(_holding_all(early, identity, pin), key=lambda sp: sp.until_us, reverse=True)
    return next((savepoint for savepoint in found if holds_rows_of(savepoint, pin)), None)


def is_of(savepoint: Savepoint, pin: BronzePin) -> bool:
    """Whether it was made of this bronze."""
    return savepoint.bronze_id == pin.table_id


def holds_rows_of(savepoint: Savepoint, pin: BronzePin) -> bool:
    """Whether bronze has the newest row of a savepoint: after an older copy of bronze was put back,
    other rows may have come in the place of as many that it has read."""
    read_us = savepoint.bronze_ingested_at_us
    return read_us is None or has_commit(pin, read_us)


def needed_ids(generations: Generations) -> set[str]:
    """What the current generation began with."""
    row = generations.current or GenerationRow()
    return {row[name] for name in ("seed_savepoint", "base_savepoint") if row.get(name)}


def expired(
    savepoints: Sequence[Savepoint],
    rules: SavepointRules,
    needed: Collection[str],
    clean: Callable[[Sequence[Savepoint]], Sequence[Savepoint]],
) -> list[Savepoint]:
    """Those that are beyond the rules' age or number and not `needed`, by `until`.

    But for the newest of the `clean` ones at or before the oldest instant that the rules keep: without it a
    backfill of that instant would replay from the beginning.
    """
    by_until = sorted(savepoints, key=lambda savepoint: savepoint.until_us)
    if not by_until:
        return []
    horizon_us = by_until[-1].until_us - rules.keep_for // MICROSECOND
    kept = [sp for sp in by_until[-rules.keep :] if sp.until_us >= horizon_us]
    # Which backfills are open, only Airflow knows; but theirs are the recomputes of late.
    late = max(savepoint.created_at for savepoint in savepoints) - rules.keep_recomputed
    of_backfills = [sp for sp in savepoints if sp.origin == "recompute" and sp.created_at >= late]
    spared = {savepoint.savepoint_id for savepoint in (*kept, *of_backfills)} | set(needed)
    going = [savepoint for savepoint in by_until if savepoint.savepoint_id not in spared]
    bases = [sp for sp in clean(going) if sp.until_us <= kept[0].until_us] if going else []
    base = max(bases, key=lambda savepoint: savepoint.until_us, default=None)
    return [savepoint for savepoint in going if savepoint is not base]
