"""A row of the matrix, tried: equal, or loud with a command of ours and equal after that, or wrong."""

import re
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from include.lake.paths import Lake
from tests.fault_model import LOUD
from tests.faults.command_line import CommandLine, Report
from tests.faults.disturb import disturb
from tests.faults.lakes import STREAMS, Story, time_of
from tests.faults.matrix import AND, OF_FILES, OPERATIONS, Row, harm, newest
from tests.simulator.damage import clean_log

EQUAL, MENDED, WRONG, MISSED = "equal", "loud and mended", "wrong", "not reached"
# What is said of files that are broken, which no disturbance makes.
DAMAGE = re.compile(r"--from-scratch|\(unreadable_(table|checkpoint)\)")
# Of commands that messages name, one after the other, until all is equal.
MOST_ROUNDS = 4


class Result(NamedTuple):
    """How it came out."""

    name: str
    group: str
    ended: str
    told: str  # what was said, or what is wrong
    seconds: float


class Bases:
    """Lakes with a history, made once for each stream and copied for each row."""

    def __init__(self, folder: Path, commands: CommandLine) -> None:
        self.folder = folder
        self._commands = commands
        self._made: dict[str, tuple[Story, Story]] = {}

    def of(self, stream: str) -> tuple[Story, Story]:
        """After three runs, and as it was after the first."""
        if stream not in self._made:
            self._made[stream] = self._make(stream)
        return self._made[stream]

    def _make(self, stream: str) -> tuple[Story, Story]:
        root = self.folder / f"base-{stream}"
        root.mkdir(parents=True)
        story = self._run(Story(Lake(str(root)), STREAMS[stream], 0))
        older = story.copied(self.folder / f"older-{stream}")
        story = self._run(self._run(story))
        _must(self._commands.stateful(story.lake.root, f"savepoint {stream}"))
        for table in Path(root).glob("*/*/_delta_log"):
            clean_log(table.parent)
        # Commits after the log's checkpoint, too.
        story = self._run(story)
        assert story.differences() == []
        return story, older

    def _run(self, story: Story) -> Story:
        story = story.land()
        _must(self._commands.stateful(story.lake.root, f"stream {story.stream.name}"))
        return story


def _must(told: Report) -> None:
    assert told.code == 0, told.text


class Trial:
    """One row in a lake of its own."""

    def __init__(self, row: Row, bases: Bases, commands: CommandLine) -> None:
        self._row, self._commands = row, commands
        base, self._older = bases.of(row.stream)
        self._folder = bases.folder / "trial"
        shutil.rmtree(self._folder, ignore_errors=True)
        self._story = base.copied(self._folder)
        if row.operation == "batch":
            self._story = self._story.land()

    def result(self) -> Result:
        began = time.monotonic()
        ended, told = self._ended()
        shutil.rmtree(self._folder, ignore_errors=True)
        seconds = round(time.monotonic() - began, 1)
        return Result(self._row.name, self._row.fault, ended, told, seconds)

    def _ended(self) -> tuple[str, str]:
        row = self._row
        command = self._filled(OPERATIONS[row.operation])
        if row.fault in OF_FILES:
            if not self._harmed():
                return MISSED, ""
            return self._complete(self._do(command))
        told = disturb(row, self._story, self._commands, command)
        if told is None:
            return MISSED, ""
        if DAMAGE.search(told.error):
            return WRONG, f"nothing is damaged: {self._short(told)}"
        return self._complete(None)

    def _harmed(self) -> bool:
        root, older = self._story.root, self._older.root
        places = self._filled(self._row.place).split(AND)
        paths = [path for path in (newest(root, place) for place in places) if path]
        for path in paths:
            harm(self._row.fault, path, older / path.relative_to(root))
        return paths != []

    def _complete(self, told: Report | None) -> tuple[str, str]:
        """What is said from here on, and what comes of doing it. None: nothing was said yet."""
        said: list[str] = []
        for _ in range(MOST_ROUNDS):
            if told is None or told.code == 0:
                told = self._do(self._filled(OPERATIONS["batch"]))
                if told.code == 0 and not self._wrong():
                    return self._right(said)
                if told.code == 0:
                    told = self._surveyed()
                if told.code == 0:
                    return WRONG, " // ".join(["silent", *self._wrong(), *said])
            said.append(self._short(told))
            if not told.commands:
                return WRONG, " // ".join(["no command", *said])
            told = self._obeyed(told.commands, said)
        return WRONG, " // ".join(["not mended", *self._wrong(), *said])

    def _right(self, said: list[str]) -> tuple[str, str]:
        if not said:
            return EQUAL, ""
        is_loud = self._row.of_model.outcome == LOUD
        return (MENDED if is_loud else WRONG), " // ".join(said)

    def _obeyed(self, commands: list[str], said: list[str]) -> Report | None:
        """Do as we are told, up to the first command that fails."""
        for command in commands:
            told = self._do(command)
            said.append(f"{command}: {told.code}")
            if told.code:
                return told
        return None

    def _surveyed(self) -> Report:
        """What maintenance of tables, a re-ingestion or a rebuild finds, where no run reads what is damaged."""
        told = self._do("maintain --dry-run")
        if "has lost" in told.text:
            return told._replace(code=1)
        told = self._do(self._filled("reingest {source}"))
        return (
            told if told.code else self._do(self._filled("rebuild {stream} --full-refresh --apply"))
        )

    def _wrong(self) -> list[str]:
        try:
            return self._story.differences()
        except Exception as error:  # noqa: BLE001 (a table that cannot be read is none that is right)
            return [f"{type(error).__name__}: {error}"]

    def _do(self, command: str) -> Report:
        return self._commands.stateful(self._story.lake.root, command)

    def _filled(self, text: str) -> str:
        stream = self._story.stream
        day = f"{time_of(0):%Y-%m-%d} {time_of(1):%Y-%m-%d}"
        return text.format(stream=stream.name, source=stream.source, day=day)

    def _short(self, told: Report) -> str:
        text = told.last_words.replace(self._story.lake.root, "")
        return " ".join(text.split())[:900]
