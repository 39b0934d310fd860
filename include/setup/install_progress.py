"""How far pip has come, for who waits for it for minutes: it tells its log, not the terminal."""

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from subprocess import STDOUT, Popen, TimeoutExpired
from typing import TextIO

SECONDS_BETWEEN_LOOKS = 1.0
PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==", re.MULTILINE)
FETCHED = re.compile(r"^(?:Collecting|Requirement already satisfied:) ", re.MULTILINE)
# From here on pip unpacks one package after the other.
UNPACKING = "Installing collected packages:"


class CountLine:
    """`done of total` as one line that changes on a terminal, as four lines anywhere else."""

    def __init__(self, total: int, output: TextIO = sys.stdout) -> None:
        self._total = total
        self._output = output
        self._shown = ("", 0)

    def show(self, what: str, done: int) -> None:
        done = min(done, self._total)
        step = done if self._output.isatty() else done * 4 // max(self._total, 1)
        if (what, step) != self._shown and step:
            self._shown = (what, step)
            start, end = ("\r\x1b[K", "") if self._output.isatty() else ("", "\n")
            self._output.write(f"{start}  {what} {done} of {self._total} packages{end}")
            self._output.flush()

    def close(self) -> None:
        if self._output.isatty():
            self._output.write("\r\x1b[K")


def pinned(files: Iterable[Path]) -> set[str]:
    """The packages that requirements files name."""
    return {name.lower() for file in files for name in PIN.findall(file.read_text())}


def run_pip(command: Sequence[str], wanted: int, log: Path, environment: dict[str, str]) -> int:
    """Run it with its output in `log`, and say meanwhile how far it is; its exit code."""
    line = CountLine(wanted)
    with log.open("w") as output:
        pip = Popen(command, stdout=output, stderr=STDOUT, env=environment)
        try:
            while True:
                try:
                    return pip.wait(SECONDS_BETWEEN_LOOKS)
                except TimeoutExpired:
                    line.show(*progress(log))
        finally:
            line.close()


def progress(log: Path) -> tuple[str, int]:
    """What pip is doing, and with how many packages it has."""
    text = log.read_text()
    if UNPACKING not in text:
        return "fetched", len(FETCHED.findall(text))
    return "installed", sum(1 for _ in log.parent.glob("lib/python*/site-packages/*.dist-info"))
