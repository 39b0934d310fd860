"""Bugs, planted one by one: `sequences.py` has what brings each of them out.

The project once had those whose names begin with L; the others are what could have been.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from include.fold import event_order, keys, records
from include.fold.admission import micros_of
from include.fold.definition import SeenValues
from include.fold.group_state import TIMERS
from include.fold.records import Pairs
from include.ingest.bronze_tables import late_fields
from include.ingest.watermark import Groups
from include.lake.generations import read_generations
from include.lake.paths import Lake
from include.registry import all_streams
from include.stream import manifest, open_stream, stream_status
from include.stream.record import FOR_EVER_US, recorded
from include.stream.stream_status import LateGroup, TableStatus, late_groups
from tests.simulator.local_engine import LocalEngine
from tests.simulator.replaced import everywhere
from tests.simulator.world import DELAY

Plant = Callable[[pytest.MonkeyPatch], None]


def rebuild_behind_a_rewound_table(patch: pytest.MonkeyPatch) -> None:
    """L1. A rebuild's base is as new as what is wrong allows, wherever the table ends."""

    def right_until_us(self: TableStatus) -> int:
        return self.wrong[0].from_us if self.wrong else FOR_EVER_US

    patch.setattr(TableStatus, "right_until_us", property(right_until_us))


def late_rows_that_live_has_not_read(patch: pytest.MonkeyPatch) -> None:
    """L3. Late rows are those that a run has counted."""

    def counted(lake: Lake, source: str, *asked: Any) -> list[LateGroup]:
        ran = (recorded(read_generations(lake, each.name)).own for each in streams_that_ran(lake))
        own = next(ran, None)
        if own is None or own.read_version is None:
            return []
        rows = DeltaTable(lake.bronze(source), version=own.read_version).to_pyarrow_table(
            columns=["ingested_at"]
        )
        newest_us = micros_of(max(rows["ingested_at"].to_pylist()))
        return [g for g in late_groups(lake, source, *asked) if g.ingested_at_us <= newest_us]

    patch.setattr(stream_status, "late_groups", counted)


def streams_that_ran(lake: Lake) -> list[Any]:
    """The streams of the simulation that have run."""
    return [each for each in all_streams() if read_generations(lake, each.name).current is not None]


def late_by_todays_delay(patch: pytest.MonkeyPatch) -> None:
    """L4. What is late is asked under the delay of now."""

    def under_todays(lake: Lake, source: str, delay_us: int, *asked: Any) -> list[LateGroup]:
        delays = {stream.watermark_delay for stream in streams_that_ran(lake)}
        today = max(delays - {DELAY}, default=DELAY)  # of the one that may have another
        return late_groups(lake, source, today // timedelta(microseconds=1), *asked)

    patch.setattr(stream_status, "late_groups", under_todays)


def intervals_of_other_code(patch: pytest.MonkeyPatch) -> None:
    """L6. Which code has restated an interval does not matter."""
    span = stream_status._Judge.span

    def of_live_alone(self: Any, entry: Any, *within: int) -> Any:
        code = self.identity.code
        return span(
            self, replace(entry, codes=(code,)) if entry.kind == "restate" else entry, *within
        )

    patch.setattr(stream_status._Judge, "span", of_live_alone)


def mapped_states_given_up(patch: pytest.MonkeyPatch) -> None:
    """L7. Without a valid savepoint a rebuild begins at the beginning, mapping or not."""
    patch.setattr(manifest, "mapped_savepoint", lambda lineage: None)


def a_table_older_than_its_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """L8. Only a checkpoint that is older than its table is noticed."""
    patch.setattr(open_stream, "_lacks_batch", lambda *_: False)
    patch.setattr(open_stream, "_is_other_bronze", lambda *_: False)


def of_savepoints(change: Callable[[pa.Table], pa.Table]) -> Plant:
    """Rebuilds and backfills begin with other states than were written."""

    def planted(patch: pytest.MonkeyPatch) -> None:
        read = LocalEngine.savepoint_states
        patch.setattr(LocalEngine, "savepoint_states", lambda *asked: change(read(*asked)))

    return planted


def without(column: str) -> Callable[[pa.Table], pa.Table]:
    """All null."""

    def change(rows: pa.Table) -> pa.Table:
        if column not in rows.column_names:
            return rows
        position = rows.column_names.index(column)
        nulls = pa.nulls(rows.num_rows, rows[column].type)
        return rows.set_column(position, column, nulls)

    return change


def seen_ends(patch: pytest.MonkeyPatch) -> None:
    """A microsecond early."""
    is_over = SeenValues.is_over
    patch.setattr(SeenValues, "is_over", lambda self, at, until: is_over(self, at - 1, until))


def a_key_changes_its_bucket(patch: pytest.MonkeyPatch) -> None:
    """It depends on how many rows come together."""
    hashes_of = keys.hashes_of
    patch.setattr(keys, "hashes_of", lambda keys: hashes_of(keys) + len(keys))


def digits_are_lost(patch: pytest.MonkeyPatch) -> None:
    """Decimals are kept as they were made, and get their digits in the store alone."""
    patch.setattr(records, "exact_decimal", lambda value, precision, scale: value)


def dicts_keep_their_order(patch: pytest.MonkeyPatch) -> None:
    """They are ordered by the store alone."""

    def stored(self: Pairs, value: Mapping[Any, Any], name: str) -> Any:
        return {key: self.item.stored(of, f"{name}[{key!r}]") for key, of in value.items()}

    patch.setattr(Pairs, "_stored", stored)


def ties_as_they_arrive(patch: pytest.MonkeyPatch) -> None:
    """Events of one instant are folded in the order in which they came."""
    by_key_and_time = event_order._by_key_and_time

    def untied(codes: Any, times: Any) -> tuple[Any, bool]:
        by_key_and_time(codes, times)
        return np.lexsort((times, codes)), False

    patch.setattr(event_order, "_by_key_and_time", untied)


def the_newest_group_counts(patch: pytest.MonkeyPatch) -> None:
    """And not the one that is furthest behind."""
    awake = Groups.awake
    patch.setattr(Groups, "awake", lambda self: awake(self)[-1:])


def no_group_is_idle(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Groups, "awake", lambda self: sorted((g.newest_us, n) for n, g in self.of.items())
    )


def groups_stay_ahead_of_a_watermark_set_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Groups, "set_back", lambda self, to_us: self)


def rescued_values_are_lost(patch: pytest.MonkeyPatch) -> None:
    """Older rows have none of a field that was declared later."""
    everywhere(patch, late_fields, lambda table, names: [])


PLANTED: dict[str, Plant] = {
    "L1": rebuild_behind_a_rewound_table,
    "L3": late_rows_that_live_has_not_read,
    "L4": late_by_todays_delay,
    "L6": intervals_of_other_code,
    "L7": mapped_states_given_up,
    "L8": a_table_older_than_its_checkpoint,
    "timers-lost-in-savepoint": of_savepoints(without(TIMERS)),
    "seen-ends-early": seen_ends,
    "key-bucket": a_key_changes_its_bucket,
    "value-digits": digits_are_lost,
    "value-dict-order": dicts_keep_their_order,
    "order-of-ties": ties_as_they_arrive,
    "groups-newest": the_newest_group_counts,
    "groups-never-idle": no_group_is_idle,
    "groups-repair": groups_stay_ahead_of_a_watermark_set_back,
    "rescued-lost": rescued_values_are_lost,
}


@contextmanager
def planted(plant: str) -> Iterator[None]:
    """A bug put back, by its name, while the body runs."""
    with pytest.MonkeyPatch.context() as patch:
        PLANTED[plant](patch)
        yield
