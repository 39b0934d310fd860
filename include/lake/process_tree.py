"""Every process that this one started, and theirs, wherever they were left.

On Linux orphans are handed to this process instead of init, so that what a killed
Airflow part leaves behind can still be found and ended. Elsewhere nothing is found.
"""

import ctypes
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PROC = Path("/proc")


def adopt_orphans() -> None:
    """From now on, orphans below this process become its children."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def interrupt_me_with_parent() -> None:
    """For a child, between fork and exec: SIGINT when its parent is gone."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def descendants(pid: int) -> list[int]:
    """The living processes below `pid`, parents first."""
    children = defaultdict(list)
    for child, parent in _parents():
        children[parent].append(child)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.pop(waiting.pop(0), [])
        found += below
        waiting += below
    return found


def end_descendants(patience: float = 5.0) -> list[int]:
    """End all that is left below this process; what could not be ended is returned."""
    steps: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGKILL)
    for step in steps:
        for pid in descendants(os.getpid()):
            _signal(pid, step)
        if wait_until(lambda: not _reap_and_list(), patience):
            break
    return descendants(os.getpid())


def wait_until(condition: Callable[[], bool], seconds: float, interval: float = 0.1) -> bool:
    """Whether `condition` came true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval)
    return True


def _reap_and_list() -> list[int]:
    """What lives below this process, once the dead are buried: a zombie would count for ever."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    return descendants(os.getpid())


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it may have ended since it was listed
        os.kill(pid, number)


def _parents() -> list[tuple[int, int]]:
    """(process, parent) of all processes that can be seen."""
    found = []
    for folder in PROC.glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # The name in parentheses may hold anything; the parent is the second field after it.
        found.append((int(folder.name), int(text.rpartition(")")[2].split()[1])))
    return found


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
