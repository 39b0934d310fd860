"""Which savepoint a replay begins with: a clean one, or none.

A savepoint is clean when it holds all events of bronze before its instant, and was made by the
code of now. Live ones stop being clean when rows come late, recomputed ones when still later
rows arrive: so it is counted each time, and all clean ones give the same result.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from include.savepoints.bronze_pin import BronzePin, count_before, has_commit
from include.savepoints.identity import StreamIdentity
from include.savepoints.lineage import code_of, mapped_lineage, serves
from include.savepoints.manifest import Savepoint


@dataclass(frozen=True)
class Base:
    """Where a replay begins. Without a savepoint: with the initial state, or with nothing."""

    savepoint: Savepoint | None
    until_us: int | None  # bronze rows from here on are replayed; None: all
    events: int  # bronze rows that it stands for
    mapped: bool = False  # it is of an older state schema: its states are mapped to the new one

    def lineage(self, code: str) -> str:
        """What `code` makes from here on goes by this name; see `lineage.py`."""
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
    counts = count_before(pin, identity.time_column, since_us, cutoffs)
    return [sp for sp, count in zip(ours, counts, strict=True) if sp.events == count]


def choose_base(
    savepoints: Sequence[Savepoint], identity: StreamIdentity, pin: BronzePin, at_most_us: int
) -> Base:
    """The clean savepoint with the largest `until` that is not after `at_most_us`."""
    best = _newest(clean_savepoints(_early(savepoints, at_most_us), identity, pin), pin)
    if best is None:
        return Base(None, identity.since_us, 0)
    return Base(best, best.until_us, best.events)


def choose_mapped_base(
    older: Sequence[Savepoint], identity: StreamIdentity, pin: BronzePin, at_most_us: int
) -> Base | None:
    """The same among savepoints of an older state schema; None when none of them is clean."""
    best = _newest(_holding_all(_early(older, at_most_us), identity, pin), pin)
    return None if best is None else Base(best, best.until_us, best.events, mapped=True)


def is_of(savepoint: Savepoint, pin: BronzePin) -> bool:
    """Whether it was made of this bronze, and of none that still had a key that was erased: a copy that
    was put back may be of before that, and as many rows may have come late as were erased."""
    is_same = savepoint.bronze_id == pin.table_id
    return is_same and savepoint.bronze_version >= pin.erased_version


def _early(savepoints: Sequence[Savepoint], at_most_us: int) -> list[Savepoint]:
    return [savepoint for savepoint in savepoints if savepoint.until_us <= at_most_us]


def _newest(savepoints: Sequence[Savepoint], pin: BronzePin) -> Savepoint | None:
    """The newest by its `until`, of those whose rows bronze has."""
    newest = sorted(savepoints, key=lambda savepoint: savepoint.until_us, reverse=True)
    return next((savepoint for savepoint in newest if holds_rows_of(savepoint, pin)), None)


def holds_rows_of(savepoint: Savepoint, pin: BronzePin) -> bool:
    """Whether bronze has the newest row of a savepoint: after an older copy of bronze was put back,
    other rows may have come in the place of as many that it has read."""
    read_us = savepoint.bronze_ingested_at_us
    return read_us is None or has_commit(pin, read_us)
