"""What a person at `make run` sees of the streams while they run: a line each."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

WAITING = "waiting"
Say = Callable[[str], None]


class Shown(Protocol):
    """Where it is said what a stream is doing."""

    def show(self, name: str, step: str, *, over: bool = False) -> None:
        """`step` is a task of its Dag, WAITING, or, with `over`, what became of it."""


class LiveLines:
    """One line a stream, which changes: for a terminal."""

    def __init__(self, lines: Progress) -> None:
        self._lines = lines
        self._tasks: dict[str, TaskID] = {}

    def show(self, name: str, step: str, *, over: bool = False) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._lines.add_task(name, total=1, start=False, step=step)
        task = self._tasks[name]
        if step != WAITING and not over:
            self._lines.start_task(task)
        self._lines.update(task, step=step, completed=int(over))


class PlainLines:
    """A line when a stream begins and one when it ends: for a pipe, or a log."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._began: dict[str, float] = {}

    def show(self, name: str, step: str, *, over: bool = False) -> None:
        if over:
            self._say(f"{name}: {step}{self._seconds(name)}")
        elif step != WAITING and name not in self._began:
            self._began[name] = time.monotonic()
            self._say(f"{name}: running")

    def _seconds(self, name: str) -> str:
        began = self._began.get(name)
        return "" if began is None else f" ({time.monotonic() - began:.0f} s)"


@contextmanager
def shown_progress(console: Console, say: Say) -> Iterator[Shown]:
    """What fits where `console` writes to."""
    if not console.is_terminal:
        yield PlainLines(say)
        return
    columns = ("  {task.description}", "{task.fields[step]}")
    texts = [TextColumn(column, markup=False) for column in columns]
    with Progress(SpinnerColumn(), *texts, TimeElapsedColumn(), console=console) as lines:
        yield LiveLines(lines)
