"""Memory that is too short, in real jobs: the JVM's heap, or of a Python worker, in the middle of their work.

    make faults ARGS="--only memory --choose 1 10"
    make faults ARGS="--only memory --match 'heap full'"

The job ends with one line that says whose memory it was and what to do, and nothing of damage. The
same command with enough memory does its work, and all rows are right.
"""

from collections.abc import Iterator
from dataclasses import replace

from tests.faults.command_line import CommandLine, Told
from tests.faults.lakes import STREAMS
from tests.faults.matrix import OPERATIONS, Row
from tests.faults.own_process import start
from tests.faults.short_memory import HEAP_LEFT_MB, KILLED, MEMORY, WORKER_DIES
from tests.faults.trial import DAMAGE, EQUAL, MENDED, MISSED, WRONG, Bases, Result, Trial

JOBS = ("batch", "reseed", "recompute", "savepoint", "compaction")
HEAP, WORKER_KILLED, WORKER_MEMORY = "heap full", "worker killed", "worker without memory"
HOW = {WORKER_KILLED: KILLED, WORKER_MEMORY: MEMORY}
LEFT_MB = (4, 12, 20, 28, 40)
CALLS = (1, 20, 150)  # of our code, in a worker's task
WORDS = {
    HEAP: ("the JVM had too little memory",),
    WORKER_KILLED: ("a Python worker was killed",),
    WORKER_MEMORY: ("Python had too little memory",),
}
DEADLINE_S = 300


def rows() -> list[Row]:
    return [
        Row(stream, operation, fault, place)
        for stream in STREAMS
        for operation in JOBS
        for fault, place in _faults()
    ]


def _faults() -> Iterator[tuple[str, str]]:
    for megabytes in LEFT_MB:
        yield HEAP, f"{megabytes} MB left"
    for fault in HOW:
        for call in CALLS:
            yield fault, f"call {call}"


def result_of(row: Row, bases: Bases, commands: CommandLine) -> Result:
    return ShortTrial(row, bases, commands).result()


class ShortTrial(Trial):
    """One row in a lake of its own, in which a file has landed."""

    def __init__(self, row: Row, bases: Bases, commands: CommandLine) -> None:
        super().__init__(replace(row, operation="batch"), bases, commands)
        self._row = row
        self._said = bases.folder / "said"

    def _ended(self) -> tuple[str, str]:
        command = self._filled(OPERATIONS[self._row.operation])
        told = self._short_of_memory(command)
        if told.code == 0:
            return MISSED, "enough was left"
        line = the_error(told)
        if not is_of_memory(self._row.fault, told):
            return WRONG, f"{told.code}: {line or told.text[-2500:]}"
        again = self._do(command)
        if again.code:
            return WRONG, f"{line} // {command}: {again.text[-2500:]}"
        ended, then = self._settled(None)
        return (MENDED, line) if ended == EQUAL else (WRONG, f"{line} // {then}")

    def _short_of_memory(self, command: str) -> Told:
        process = start(self._story.lake.root, command, self._said, environment_of(self._row))
        code = process.wait(DEADLINE_S)
        return Told(code, self._said.read_text(errors="replace"))


def environment_of(row: Row) -> dict[str, str]:
    """As `short_memory` reads it."""
    if row.fault == HEAP:
        return {HEAP_LEFT_MB: row.place.split()[0]}
    return {WORKER_DIES: f"{HOW[row.fault]} {row.place.split()[-1]}"}


def the_error(told: Told) -> str:
    """The one line that says why; empty if there is none, or more than one."""
    errors = [line for line in told.text.splitlines() if line.startswith("error: ")]
    return errors[0] if len(errors) == 1 else ""


def is_of_memory(fault: str, told: Told) -> bool:
    line = the_error(told)
    of_it = any(words in line for words in WORDS[fault])
    return of_it and "repeat the command" in line and DAMAGE not in told.last_words
