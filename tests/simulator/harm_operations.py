"""What harms a lake, and what care and time do to it."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from include.lake.paths import LakeError
from include.lake.table import Table
from tests.simulator.actions import OF_STREAM
from tests.simulator.auditor import Auditor
from tests.simulator.damage import (
    Copies,
    append_again,
    clean_log,
    empty_newest_commit,
    lose,
    parts_of,
)
from tests.simulator.world import World


class HarmOperations:
    """After each of them everything is looked at."""

    world: World
    kind: str
    copies: Copies
    harmed: bool
    restart: Callable[[], object]
    auditor: Auditor
    run: Callable[[int | None], None]
    clock_row: Callable[[], None]
    land_in_time: Callable[[str, list[int], int], None]
    _audit: Callable[[], None]
    _start: Callable[[str, int], None]

    def back_up(self) -> None:
        self.copies.take(self.kind)

    def put_back(self, part: str) -> None:
        """A part that is older than the others."""
        self.put_back_parts(part)

    def put_back_stream(self) -> None:
        """All of the stream, as of one time; bronze is newer."""
        self.put_back_parts("dead_letters", *OF_STREAM)

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
        with TemporaryDirectory() as folder:
            shutil.copytree(path, copy := Path(folder, "bronze"))
            append_again(path)
            self.restart()
            self._start(job, ago)
            shutil.rmtree(path)
            shutil.copytree(copy, path)
        self.restart()
        self._audit()

    def two_lives(self, part: str, job: str, runs: list[bool]) -> None:
        """The lake is copied and lives on; the copy is put back and lives on otherwise; then a part
        of the first life comes in its place, and a job upon it. Bronze is put back after that."""
        root = Path(self.world.lake.root)
        marks, commits = list(self.auditor.marks), list(self.world.commits)
        with TemporaryDirectory() as folder:
            copy, first, second = (Path(folder, name) for name in ("copy", "first", "second"))
            shutil.copytree(root, copy)
            self._live("a", runs[0])
            shutil.move(root, first)
            shutil.copytree(copy, root)
            self.auditor.marks, self.world.commits = marks, commits
            self.restart()
            self._live("b", runs[1])
            shutil.copytree(root, second)
            self.harmed = True
            names = ["bronze"] if part == "bronze" else ["table", "dead_letters", "checkpoint"]
            places = [parts_of(self.world, self.kind)[n].relative_to(root) for n in names]
            self._replace(places, first)
            self._start(job, 5)
            if part == "bronze":
                self._replace(places, second)
                self._audit()

    def _live(self, key: str, runs: bool) -> None:
        self.world.pass_time(timedelta(minutes=30))
        self.land_in_time(key, [2, 1], 1)
        self.world.pass_time(timedelta(minutes=30))
        self.clock_row()
        if runs:
            self.run(None)

    def _replace(self, places: list[Path], life: Path) -> None:
        for place in places:
            shutil.rmtree(target := Path(self.world.lake.root, place), ignore_errors=True)
            if (life / place).exists():
                shutil.copytree(life / place, target)
        self.restart()

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
        if DeltaTable.is_deltatable(str(path)):
            with suppress(LakeError):  # the maintenance of each week has said its record again
                table = Table.open(self.world.lake, str(path))
                if record := table.record():
                    table.commit([], record)
            with suppress(DeltaError):
                clean_log(path)
        # A stream that was behind is cut off: loud, and a reseed mends it.
        self.harmed = self.harmed or part == "bronze"
        self._audit()
