"""Bugs of a source's clock, of late fields and of landed files, to be planted: none was ever there."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow.compute as pc
import pytest

from include.ingest import ingest_log
from include.ingest.bronze_tables import late_fields
from include.ingest.ingest_log import BRONZE, Ingestion, Logged
from include.ingest.watermark import Groups, SourceWatermark, advance_watermark, floor_to_ms
from include.lake.table import Record, Table, record_of
from tests.simulator.replaced import everywhere


def the_newest_group_counts(patch: pytest.MonkeyPatch) -> None:
    """And not the one that is furthest behind."""
    awake = Groups.awake
    patch.setattr(Groups, "awake", lambda self: awake(self)[-1:])


def no_group_is_idle(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Groups, "awake", lambda self: sorted((g.newest_us, n) for n, g in self.of.items())
    )


def a_pause_is_silence(patch: pytest.MonkeyPatch) -> None:
    """All time between two commits counts as silence of each group."""
    after = Groups.after

    def silent(self: Groups, newest: Any, before_us: int | None, at_us: int) -> Groups:
        passed_us = 0 if before_us is None else at_us - before_us
        of = after(self, newest, before_us, at_us).of
        grown = {n: self.of[n].silent_us + passed_us for n in of.keys() - newest.keys()}
        return replace(
            self, of={n: g._replace(silent_us=grown.get(n, g.silent_us)) for n, g in of.items()}
        )

    patch.setattr(Groups, "after", silent)


def a_group_takes_the_clock_back(patch: pytest.MonkeyPatch) -> None:
    """One that is new, or wakes, behind the clock."""

    right = advance_watermark

    def goes_back(before: SourceWatermark, *given: Any) -> SourceWatermark:
        return right(replace(before, watermark_us=None), *given)

    everywhere(patch, right, goes_back)


def groups_stay_ahead_of_a_watermark_set_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Groups, "set_back", lambda self, to_us: self)


def a_group_goes_back(patch: pytest.MonkeyPatch) -> None:
    """It has reached what came last of it, though it had been further."""
    after = Groups.after

    def goes_back(self: Groups, newest: Any, before_us: int | None, at_us: int) -> Groups:
        of = after(self, newest, before_us, at_us).of
        came = {name: floor_to_ms(min(us, at_us)) for name, us in newest.items()}
        again = {n: g._replace(newest_us=came.get(n, g.newest_us)) for n, g in of.items()}
        return replace(self, of=again)

    patch.setattr(Groups, "after", goes_back)


def rescued_values_are_lost(patch: pytest.MonkeyPatch) -> None:
    """Older rows have none of a field that was declared later."""
    everywhere(patch, late_fields, lambda table, names: [])


def nobody_finishes(patch: pytest.MonkeyPatch) -> None:
    """What a run has logged that died then is added by none."""

    def own(self: Any) -> list[int]:
        for name in self._tables:
            for batch in self.logged.batches(name, self._done[name]):
                if all(file["path"] in self._staged for file in self.logged.files(name, batch)):
                    self._add(name, batch)
        return []

    patch.setattr(Ingestion, "finish", own)


def a_batch_is_added_twice(patch: pytest.MonkeyPatch) -> None:
    """A run adds the newest batch of the log, whether or not the tables have it."""
    newest = ingest_log.newest_batch
    everywhere(patch, newest, lambda table, logged: newest(table, logged) - 1)


def the_watermark_is_of_bronze(patch: pytest.MonkeyPatch) -> None:
    """As bronze had it when it was opened: of a batch that it lacked then nothing is known."""
    read, commit = Ingestion._read_log, Ingestion.commit

    def looked(self: Any) -> None:
        read(self)
        self.seen = self._done[BRONZE]

    def committed(self: Any, entry: Any) -> None:
        commit(self, entry)
        self.seen = self.logged.newest

    def watermark(self: Any) -> SourceWatermark:
        rows = self.logged.rows
        return Logged(rows.filter(pc.less_equal(rows["batch"], self.seen))).watermark(self.source)

    patch.setattr(Ingestion, "_read_log", looked)
    patch.setattr(Ingestion, "commit", committed)
    patch.setattr(Ingestion, "watermark", watermark)


def others_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """The newest record holds, whatever was committed since."""

    def record(self: Table) -> Record | None:
        found = (record_of(actions) for _, actions in self._commits())
        return next((each for each in found if each is not None), None)

    patch.setattr(Table, "record", record)


def batches_are_known_by_number(patch: pytest.MonkeyPatch) -> None:
    """Whose commit it is that has it does not matter."""

    def newest(table: Table, logged: Logged) -> int:
        record = table.record()
        return -1 if record is None else min(int(record["batch"]), logged.newest)

    everywhere(patch, ingest_log.newest_batch, newest)


LANDING: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "groups-newest": the_newest_group_counts,
    "groups-never-idle": no_group_is_idle,
    "groups-pause": a_pause_is_silence,
    "groups-clock-back": a_group_takes_the_clock_back,
    "groups-set-watermark": groups_stay_ahead_of_a_watermark_set_back,
    "groups-go-back": a_group_goes_back,
    "rescued-lost": rescued_values_are_lost,
    "log-not-finished": nobody_finishes,
    "log-added-twice": a_batch_is_added_twice,
    "log-watermark-of-bronze": the_watermark_is_of_bronze,
    "log-others": others_are_not_looked_for,
    "log-by-number": batches_are_known_by_number,
}
