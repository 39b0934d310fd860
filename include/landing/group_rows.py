"""The groups of a source's clock as bronze's rows have them, where its log does not say."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from include.lake.paths import files_of
from include.landing.group_clock import (
    Group,
    Groups,
    counted_us,
    floor_to_ms,
    group_column,
    newest_of_groups,
)
from include.landing.ingest_log import Clock, ClockReset
from include.settings import Source

COLUMNS = ("event_time", "ingested_at", "is_clock")


def groups_of_rows(
    bronze: DeltaTable, source: Source, clock: Clock, empty: Groups, resets: Sequence[ClockReset]
) -> Groups:
    """What the newest commit, which made `clock`, says of the groups, or would say.

    Reads a few columns of all of bronze, a piece at a time.
    """
    if clock.watermark_us is None:
        return empty
    instants: set[int] = set()
    reached: dict[str, tuple[int, int]] = {}  # and when it was last seen
    for at_us, newest in _commits(bronze, source):
        instants.add(at_us)
        for name, event_us in newest.items():
            newest_us = _set_back(floor_to_ms(min(event_us, at_us)), at_us, resets)
            known = reached.get(name, (newest_us, at_us))
            reached[name] = (max(known[0], newest_us), max(known[1], at_us))
    silent = _silences(sorted(instants), empty.idle_after_us)
    of = {name: Group(us, seen, silent[seen]) for name, (us, seen) in reached.items()}
    groups = replace(empty, of=of)
    return groups.without_passed(clock.watermark_us)


def _set_back(newest_us: int, at_us: int, resets: Sequence[ClockReset]) -> int:
    return min([newest_us, *(reset.to_us for reset in resets if reset.at_us > at_us)])


def _silences(instants: list[int], idle_after_us: int) -> dict[int, int]:
    """What counts as silence of a group that was seen at each instant, and not since."""
    silent = dict.fromkeys(instants[-1:], 0)
    for before_us, at_us in reversed(list(pairwise(instants))):
        silent[before_us] = silent[at_us] + counted_us(before_us, at_us, idle_after_us)
    return silent


def _commits(bronze: DeltaTable, source: Source) -> Any:
    """Parts of commits: their `ingested_at`, and the newest of their groups; none of clock rows."""
    column = group_column(source)
    files = bronze.to_pyarrow_dataset(filesystem=files_of(str(bronze.table_uri)))
    for batch in files.to_batches(columns=[column, *COLUMNS]):
        rows = pa.table({name: _plain(batch[name]) for name in batch.schema.names})
        keys = ["ingested_at", "is_clock", column]
        found = rows.group_by(keys).aggregate([("event_time", "max")])
        for row in found.to_pylist():
            newest = [] if row["is_clock"] else [(row[column], row["event_time_max"])]
            yield row["ingested_at"], newest_of_groups(source, newest)


def _plain(values: pa.Array) -> pa.Array:
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
