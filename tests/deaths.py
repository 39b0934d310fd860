"""Runs of ingestion that die, for tests; and the time of the machine that they run on."""

from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import Any

import pytest

from include.ingest import ingest as ingestion
from include.ingest import source_connector
from include.ingest.parse_files import ParsedHere
from include.lake.table import Table
from spark_jobs.tables.landing import ParsedOnSpark

# All that a run writes once its tables are made: where it is looked up when it is called.
WRITES = (
    (ParsedHere, "stage_accepted"),
    (ParsedOnSpark, "stage_accepted"),
    (ParsedHere, "stage_refused"),
    (ParsedOnSpark, "stage_refused"),
    (Table, "commit"),
    (Table, "merge"),
    (ingestion, "write_heartbeat"),
)


class KilledError(Exception):
    """Stands for the death of the process."""


def die(*_: object, **__: object) -> Any:
    raise KilledError


class Dying:
    """Ends a run just before a write of it, by the number of that, from 0; or lets another be `then`.

    Just after the write before is the same: what lies between changes nothing.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, number: int, then: Callable[[], object] = die
    ) -> None:
        self.written: list[str] = []
        self._number, self._then = number, then
        for place, name in WRITES:
            patch.setattr(place, name, self._counted(name, getattr(place, name)))

    def _counted(self, name: str, write: Callable[..., Any]) -> Callable[..., Any]:
        def count_and_write(*given: Any, **named: Any) -> Any:
            if len(self.written) == self._number:
                self._number = -1
                self._then()
            self.written.append(name)
            return write(*given, **named)

        return count_and_write


class MachineClock:
    """The clock of the machine that ingests: it stands until a test sets it."""

    def __init__(self, patch: pytest.MonkeyPatch, time: datetime) -> None:
        self.time = time
        for module in (source_connector, ingestion):
            patch.setattr(module, "datetime", self)

    def now(self, zone: tzinfo) -> datetime:
        return self.time.astimezone(zone)
