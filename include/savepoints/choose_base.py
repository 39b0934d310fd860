"""Which savepoint a replay begins with: a clean one, or none.

A savepoint is clean when it holds all events of bronze before its instant, and was made by the
code of now. Live ones stop being clean when rows come late, recomputed ones when still later
rows arrive: so it is counted each time, and all clean ones give the same result.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from include.savepoints.bronze_pin import BronzePin, count_before
from include.savepoints.identity import StreamIdentity
from include.savepoints.manifest import Savepoint


@dataclass(frozen=True)
class Base:
    """Where a replay begins. Without a savepoint: with the initial state, or with nothing."""

    savepoint: Savepoint | None
    until_us: int | None  # bronze rows from here on are replayed; None: all
    events: int  # bronze rows that it stands for


def clean_savepoints(
    savepoints: Sequence[Savepoint], identity: StreamIdentity, pin: BronzePin
) -> list[Savepoint]:
    """Those of `savepoints` that hold all that the pinned bronze has before them."""
    ours = [
        savepoint
        for savepoint in savepoints
        if savepoint.code == identity.code and savepoint.bronze_id == pin.table_id
    ]
    cutoffs = [savepoint.until_us for savepoint in ours]
    counts = count_before(pin, identity.time_column, identity.since_us, cutoffs)
    return [sp for sp, count in zip(ours, counts, strict=True) if sp.events == count]


def choose_base(
    savepoints: Sequence[Savepoint], identity: StreamIdentity, pin: BronzePin, at_most_us: int
) -> Base:
    """The clean savepoint with the largest `until` that is not after `at_most_us`."""
    early = [savepoint for savepoint in savepoints if savepoint.until_us <= at_most_us]
    clean = clean_savepoints(early, identity, pin)
    if not clean:
        return Base(None, identity.since_us, 0)
    best = max(clean, key=lambda savepoint: savepoint.until_us)
    return Base(best, best.until_us, best.events)
