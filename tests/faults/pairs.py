"""Two real drivers of one stream: one stands still, another one begins, and then the first goes on.

    make faults ARGS="--only pairs --count 50 --first 1"

A pair is a seed: what the first one does (its process group: `./stateful`, the JVM, its Python), after
how many files below the lake it is stopped by SIGSTOP, and what is started then, in processes of its
own that wait for nobody. That one is refused in one line; or does all, where the first had nothing
in its hands. The first is woken up by SIGCONT and ends well; or it is killed, so that the second one does its work.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from watchfiles import Change, watch
from watchfiles.main import FileChange

from include.lake.lease import lease_holder, wait_until
from include.lake.ops import read_ops
from tests.fault_model import Fault
from tests.faults.command_line import CommandLine, Report
from tests.faults.lakes import STREAMS
from tests.faults.matrix import OPERATIONS, Row
from tests.faults.own_process import PATIENCE, start
from tests.faults.trial import MISSED, WRONG, Bases, Result, Trial

STALLED, KILLED = "stalled", "stalled and killed"
VARIETIES = (STALLED, STALLED, STALLED, KILLED)
# That the first one comes to, or nearly.
MOST_FILES = {"batch": 120, "rebuild": 80, "restate": 60, "savepoint": 40, "compaction": 80}
SECONDS = ("batch", "batch", "rebuild", "restate", "savepoint", "compaction", "maintenance")
REFUSED = 2
REFUSAL = "(lease_taken)"
DEADLINE_S = 300
MOST_TRIES = 4


@dataclass(frozen=True)
class Pair(Row):
    """A row of this part; its fault is the variety."""

    seed: int = 0
    second: str = ""
    after_files: int = 1

    @property
    def of_model(self) -> Fault:
        return Fault.KILLED if self.fault == KILLED else Fault.TWO_DRIVERS

    @property
    def name(self) -> str:
        parts = (f"pair {self.seed}", self.stream, self.fault, self.operation, self.second)
        return " | ".join(parts)


def pair_of(seed: int) -> Pair:
    """The pair of a seed, the same one each time."""
    chance = Random(f"pair {seed}")
    operation = chance.choice(list(MOST_FILES))
    return Pair(
        stream=chance.choice(sorted(STREAMS)),
        operation=operation,
        fault=chance.choice(VARIETIES),
        seed=seed,
        second=chance.choice(SECONDS),
        after_files=chance.randrange(MOST_FILES[operation]) + 1,
    )


def result_of(pair: Pair, bases: Bases, commands: CommandLine) -> Result:
    """Try the pair; of a first one that wrote fewer files, again at one of those."""
    result = PairTrial(pair, bases, commands).result()
    for _ in range(MOST_TRIES - 1):
        if result.ended != MISSED:
            break
        pair = replace(pair, after_files=pair.after_files % int(result.told) + 1)
        result = PairTrial(pair, bases, commands).result()
    return result


class PairTrial(Trial):
    """One pair in a lake of its own, in which a file has landed."""

    def __init__(self, pair: Pair, bases: Bases, commands: CommandLine) -> None:
        super().__init__(replace(pair, operation="batch"), bases, commands)
        self._row = self._pair = pair
        self._said = [bases.folder / "said-first", bases.folder / "said-second"]

    def _ended(self) -> tuple[str, str]:
        with self._first() as first:
            where = first.stop_after(self._pair.after_files)
            if where is None:
                is_well = first.code == 0
                return (MISSED, str(first.files)) if is_well else (WRONG, _end_of(self._said[0]))
            met = self._meet(first)
        if met.wrong:
            return WRONG, f"{where}: {met.wrong}"
        ended, told = self._complete(None)
        return ended, " // ".join(part for part in (where, met.text, told) if part)

    @contextmanager
    def _first(self) -> Iterator["StandingStill"]:
        root = self._story.root
        with watched(root) as changes:
            process = self._start(0, self._pair.operation)
            with standing_still(process, root, changes) as first:
                yield first

    def _meet(self, first: "StandingStill") -> "Met":
        """The second one's run beside the first, which stands still, and the first's end."""
        is_killed = self._pair.fault == KILLED
        held = lease_holder(self._story.lake, f"stream-{self._pair.stream}") is not None
        runs = self._runs()
        if is_killed:
            first.kill()
        second = self._second()
        is_beside = held and not is_killed and self._runs() > runs
        code = 0 if is_killed else first.go_on()
        return Met(is_killed, held, second, is_beside, code, _end_of(self._said[0]))

    def _second(self) -> Report:
        process = self._start(1, self._pair.second, {PATIENCE: "none"})
        try:
            code = process.wait(DEADLINE_S)
        finally:
            _kill(process)
        return Report(code, _end_of(self._said[1], 20_000))

    def _start(
        self, number: int, operation: str, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        command = self._filled(OPERATIONS[operation])
        return start(self._story.lake.root, command, self._said[number], environment)

    def _runs(self) -> int:
        """The number of jobs on the stream that have succeeded."""
        wanted = {"subject": self._pair.stream, "outcome": "succeeded"}
        return read_ops(self._story.lake, "runs", wanted).num_rows


class Met(NamedTuple):
    """The outcome of two drivers."""

    is_alone: bool  # the second, as the first was killed
    held: bool  # the stream's lease, by the first when it was stopped
    second: Report
    is_beside: bool  # whether the second has worked while that was held
    code: int  # of the first
    said: str  # by it

    @property
    def wrong(self) -> str | None:
        if self.second.code and (self.is_alone or not is_refusal(self.second)):
            return f"the second one ends with {self.second.code}: {self.second.text[-2500:]}"
        if self.is_beside:
            return f"the second one has worked beside the first: {self.second.text[-2500:]}"
        return f"the first one ends with {self.code}: {self.said}" if self.code else None

    @property
    def text(self) -> str:
        how = "is refused" if self.second.code else "ends well"
        return f"lease {'held' if self.held else 'free'}, the second one {how}"


def is_refusal(told: Report) -> bool:
    """One line that says who is at work and what to do, and nothing of damage."""
    errors = [line for line in told.text.splitlines() if line.startswith("error: ")]
    words_of_failures = ("Traceback", "--from-scratch", "\tat ")
    return (
        told.code == REFUSED
        and len(errors) == 1
        and errors[0].endswith(REFUSAL)
        and not any(words in told.text for words in words_of_failures)
    )


def _end_of(said: Path, characters: int = 2500) -> str:
    return said.read_text(errors="replace")[-characters:]


class StandingStill:
    """A process group that is stopped when so many files have come below a folder."""

    def __init__(
        self, process: subprocess.Popen[bytes], folder: Path, changes: Iterator[set[FileChange]]
    ) -> None:
        self._process, self._folder, self._changes = process, folder, changes
        self.files = 0  # that have come so far

    @property
    def code(self) -> int | None:
        """With which it has ended."""
        return self._process.poll()

    def stop_after(self, files: int) -> str | None:
        """The file at which it stands still; None if it has ended before."""
        for changes in self._changes:
            added = sorted(path for change, path in changes if change is Change.added)
            self.files += len(added)
            has_ended = self._process.poll() is not None
            if has_ended and not changes:  # nor do more files come
                return None
            if added and not has_ended and self.files >= files:
                self._stop()
                return f"file {self.files}: {Path(added[-1]).relative_to(self._folder)}"
        raise AssertionError("files are watched for without an end")

    def _stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)
        stopped = wait_until(lambda: set(_states(self._process.pid)) <= {"T", "Z"}, 10)
        assert stopped, "SIGSTOP stops all of a group"

    def go_on(self) -> int:
        """The code with which it ends then."""
        os.killpg(self._process.pid, signal.SIGCONT)
        return self._process.wait(DEADLINE_S)

    def kill(self) -> None:
        _kill(self._process)


@contextmanager
def watched(folder: Path) -> Iterator[Iterator[set[FileChange]]]:
    """The changes below a folder from now on; empty when for a while there are none."""
    changes = watch(folder, debounce=1, step=1, rust_timeout=100, yield_on_timeout=True)
    next(changes)  # only then it watches
    with closing(changes):
        yield changes


@contextmanager
def standing_still(
    process: subprocess.Popen[bytes], folder: Path, changes: Iterator[set[FileChange]]
) -> Iterator[StandingStill]:
    """A process, started after `changes` had begun, that is killed at the end."""
    try:
        yield StandingStill(process, folder, changes)
    finally:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _states(group: int) -> Sequence[str]:
    """What the processes of a group do, by the kernel's letters."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The name in parentheses may hold anything.
            state, _, of_group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(of_group) == group:
                found.append(state)
    return found
