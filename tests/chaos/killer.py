"""Real kills, by SIGKILL: of this process with its JVM, of the JVM alone, or of Spark's workers."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import psutil
from watchfiles import Change, watch

from tests.chaos.plan import Kill

WORKER = b"pyspark.daemon"


class Killer:
    """Says in a file of `kills` what it kills, before it does."""

    def __init__(self, lake: Path, kills: Path) -> None:
        self._lake = lake
        self._kills = kills
        self.hit: str | None = None  # what it has killed, while this process goes on

    def die(self, where: str) -> NoReturn:
        """This process, its JVM and what they started, at once."""
        self._note(f"all, {where}")
        os.killpg(0, signal.SIGKILL)
        raise AssertionError("dead")

    @contextmanager
    def armed(self, kill: Kill | None) -> Iterator[None]:
        """While the body runs, kill that when so many files have come below the lake."""
        self.hit = None
        if kill is None:
            yield
            return
        ended = threading.Event()
        waiting = threading.Thread(target=self._wait, args=(kill, ended), daemon=True)
        waiting.start()
        try:
            yield
        finally:
            ended.set()
            waiting.join()

    def _wait(self, kill: Kill, ended: threading.Event) -> None:
        seen = 0
        for changes in watch(self._lake, debounce=1, step=1, rust_timeout=200, stop_event=ended):
            added = sorted(path for change, path in changes if change is Change.added)
            seen += len(added)
            if seen >= kill.after_files:
                where = f"file {seen}: {Path(added[-1]).relative_to(self._lake)}" if added else ""
                self._kill(kill.target, where)
                return

    def _kill(self, target: str, where: str) -> None:
        if target == "all":
            self.die(where)
        below = psutil.Process().children(recursive=True)
        found = [process.pid for process in below if _is(target, process.pid)]
        if found:
            self.hit = target
            self._note(f"{target}, {where}")
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _note(self, what: str) -> None:
        with self._kills.open("a") as kills:
            kills.write(f"{what}\n")


def _is(target: str, pid: int) -> bool:
    with suppress(OSError):
        command = Path("/proc", str(pid), "cmdline").read_bytes()
        return WORKER in command if target == "worker" else b"SparkSubmit" in command
    return False
