"""The most memory that a job's processes held at once, sampled while it runs.

The process's resident size, not Spark's metric: RocksDB's memory is outside the heap, and
the Python workers' outside the JVM. Executors on other machines are not seen.
"""

import threading
import time
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import NamedTuple

import psutil

INTERVAL_S = 1.0
_asked = count()


class ResidentBytes(NamedTuple):
    """Memory pages in use; pages that forked workers share count for each of them."""

    jvm: int
    python: int


class MemorySampler:
    """Samples while its body runs; `peak` is the most of each kind seen at any one time."""

    def __init__(self) -> None:
        self.peak = ResidentBytes(0, 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True, name="memory")

    def __enter__(self) -> "MemorySampler":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            now = resident_bytes()
            self.peak = ResidentBytes(*map(max, self.peak, now))
            if self._ended.wait(INTERVAL_S):
                return


def jvm_start_seconds() -> float | None:
    """Since the JVM began that spark-submit started for this process; None without one, and when it is
    asked again: what came between is no start."""
    parent, is_first = psutil.Process().parent(), not next(_asked)
    if parent is None or not is_first or not is_jvm(parent):
        return None
    return time.time() - float(parent.create_time())


def resident_bytes() -> ResidentBytes:
    """What this job's JVM and Python processes hold now: this one, its JVM, and the workers."""
    this = psutil.Process()
    # spark-submit starts the JVM, which starts this process; a shell or a test the JVM itself.
    parent = this.parent()
    root = parent if parent is not None and is_jvm(parent) else this
    jvm = python = 0
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # it ended since it was listed
            held = process.memory_info().rss
            if is_jvm(process):
                jvm += held
            else:
                python += held
    return ResidentBytes(jvm, python)


def is_jvm(process: psutil.Process) -> bool:
    return bool(process.name() == "java")
