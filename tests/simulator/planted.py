"""Bugs, planted one by one: the simulator must find each of them. Here are those that the project
once had; those of planted_folds.py and planted_landing.py are only what could have been.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from include.fold.admission import micros_of
from include.lake.generations import read_generations
from include.lake.paths import Lake
from include.registry import all_streams
from include.stream import manifest, open_stream, stream_status
from include.stream.record import FOR_EVER_US, recorded
from include.stream.stream_status import LateGroup, TableStatus, late_groups
from tests.simulator.planted_folds import FOLDS
from tests.simulator.planted_landing import LANDING
from tests.simulator.world import DELAY


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
    foreign = stream_status._Judge._foreign

    def of_live_alone(self: Any, entry: Any) -> Any:
        return None if entry.kind == "restate" else foreign(self, entry)

    patch.setattr(stream_status._Judge, "_foreign", of_live_alone)


def mapped_states_given_up(patch: pytest.MonkeyPatch) -> None:
    """L7. Without a valid savepoint a rebuild begins at the beginning, mapping or not."""
    patch.setattr(manifest, "mapped_savepoint", lambda lineage: None)


def a_table_older_than_its_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """L8. Only a checkpoint that is older than its table is noticed."""
    patch.setattr(open_stream, "_lacks_batch", lambda *_: False)
    patch.setattr(open_stream, "_is_other_bronze", lambda *_: False)


PLANTED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "L1": rebuild_behind_a_rewound_table,
    "L3": late_rows_that_live_has_not_read,
    "L4": late_by_todays_delay,
    "L6": intervals_of_other_code,
    "L7": mapped_states_given_up,
    "L8": a_table_older_than_its_checkpoint,
    **FOLDS,
    **LANDING,
}


@contextmanager
def planted(plant: str | None) -> Iterator[None]:
    """A bug put back, by its name, while the body runs; None: none."""
    with pytest.MonkeyPatch.context() as patch:
        if plant is not None:
            PLANTED[plant](patch)
        yield
