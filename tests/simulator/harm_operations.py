"""What harms a lake, and what care and time do to it."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from include.landing.ingest_seal import seal_tables
from tests.simulator.actions import OF_STREAM
from tests.simulator.damage import (
    Copies,
    append_again,
    clean_log,
    empty_newest_commit,
    lose,
    parts_of,
)
from tests.simulator.world import SOURCE, World


class HarmOperations:
    """After each of them everything is looked at."""

    world: World
    kind: str
    copies: Copies
    harmed: bool
    restart: Callable[[], object]
    _audit: Callable[[], None]
    _start: Callable[[str, int], None]

    def back_up(self) -> None:
        self.copies.take(self.kind)

    def put_back(self, part: str) -> None:
        """A part that is older than the others."""
        self.put_back_parts(part)

    def put_back_stream(self) -> None:
        """All of the stream, as of one time; bronze is newer."""
        self.put_back_parts("rejected", *OF_STREAM)

    def put_back_parts(self, *parts: str) -> None:
        if self.copies.made:
            self.harmed = True
            self.copies.put_back(self.kind, *parts)
            self.restart()
            self._audit()

    def lose(self, part: str) -> None:
        self.harmed = True
        lose(self.world, self.kind, part)
        self._audit()

    def write_to(self, part: str) -> None:
        """Somebody else has a hand in it: a row is there once more."""
        path = parts_of(self.world, self.kind)[part]
        with suppress(DeltaError):  # of a table that came to harm
            self.harmed = append_again(path) or self.harmed
        self.restart()
        self._audit()

    def write_to_bronze(self, job: str, ago: int) -> None:
        """The same, and what a job makes of it, before it is put back as that job says."""
        path = parts_of(self.world, self.kind)["bronze"]
        seal_tables(self.world.lake, SOURCE.name)  # as each run of ingestion leaves it
        with TemporaryDirectory() as folder:
            shutil.copytree(path, copy := Path(folder, "bronze"))
            append_again(path)
            self.restart()
            self._start(job, ago)
            shutil.rmtree(path)
            shutil.copytree(copy, path)
        self.restart()
        self._audit()

    def power_cut(self) -> None:
        self.harmed = True
        empty_newest_commit(self.world, self.kind)
        self.restart()
        self._audit()

    # Care, and time

    def optimize(self, part: str) -> None:
        """Join the files of a table, as its maintenance does."""
        path = parts_of(self.world, self.kind)[part]
        if DeltaTable.is_deltatable(str(path)):
            with suppress(DeltaError):  # of a table that came to harm
                DeltaTable(str(path)).optimize.compact()
        self._audit()

    def clean_log(self, part: str) -> None:
        """Months later: what the log kept of old commits is gone."""
        path = parts_of(self.world, self.kind)[part]
        if part == "bronze" and self.world.shape.format is not None:
            # As each run of ingestion leaves it, by which most commits of a world are not made.
            seal_tables(self.world.lake, SOURCE.name)
        if DeltaTable.is_deltatable(str(path)):
            with suppress(DeltaError):
                clean_log(path)
        # A stream that was behind is cut off: loud, and a reseed mends it.
        self.harmed = self.harmed or part == "bronze"
        self._audit()
