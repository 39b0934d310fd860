"""A job whose memory is short: for the JVM, or for a Python worker; asked for in the environment.

    HEAP_LEFT_MB=20      of the JVM's heap so much is left once its session is there
    WORKER_DIES="killed 40"    a worker of Spark's is killed, as the kernel does that has no memory
                         left, when it makes so many calls of our code; or gets a MemoryError there
                         ("memory 40")

As `python -m tests.faults.short_memory` it is the daemon that forks such workers.
"""

import os
import signal
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from include.settings import PROJECT

HEAP_LEFT_MB, WORKER_DIES = "HEAP_LEFT_MB", "WORKER_DIES"
DAEMON = "spark.python.daemon.module"
KILLED, MEMORY = "killed", "memory"
BLOCK = 2**20
OURS = tuple(str(PROJECT / folder) for folder in ("include", "spark_jobs"))


def options() -> list[str]:
    """Of spark-submit, for what is asked for."""
    return ["--conf", f"{DAEMON}={__name__}"] if WORKER_DIES in os.environ else []


def of_short_heap(made: Callable[..., Any]) -> Callable[..., Any]:
    """What makes a session in whose JVM little of the heap is left, as long as it lasts."""
    filled = []

    def session(*given: Any) -> Any:
        spark = made(*given)
        filled.append(_fill_heap(spark))
        return spark

    return session


def _fill_heap(spark: Any) -> Any:
    left = int(os.environ[HEAP_LEFT_MB]) * BLOCK
    runtime, blocks = spark._jvm.java.lang.Runtime.getRuntime(), spark._jvm.java.util.ArrayList()
    spark._jvm.java.lang.System.gc()
    free = runtime.maxMemory() - runtime.totalMemory() + runtime.freeMemory()
    for _ in range((free - left) // BLOCK):
        blocks.add(spark._jvm.java.nio.ByteBuffer.allocate(BLOCK))
    return blocks


class _Dying:
    """Counts the calls of our code in a worker."""

    def __init__(self, how: str, at: int) -> None:
        self._how, self._left = how, at

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not _is_ours(frame.f_code):
            return
        self._left -= 1
        if self._left:
            return
        if self._how == KILLED:
            os.kill(os.getpid(), signal.SIGKILL)
        raise MemoryError


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(OURS) and code.co_name != "<module>"


def main() -> None:
    """The daemon of Spark, but for what its workers do first."""
    from pyspark import daemon

    how, at = os.environ[WORKER_DIES].split()
    work = daemon.worker

    def die_in_work(*given: Any) -> int:
        sys.setprofile(_Dying(how, int(at)).profile)
        return int(work(*given))

    daemon.worker = die_in_work
    daemon.manager()


if __name__ == "__main__":
    main()
