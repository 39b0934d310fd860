"""One writer at a time per source and per stream, however the job was started.

Airflow's pools keep its own tasks apart; the lease also keeps a job started by hand
apart from one that Airflow started. On a local lake it is a lock of the operating
system, so it goes with its holder: nothing has to be taken over after a kill. On an object
store it expires (`include/lake/object_lease.py`).
"""

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TextIO

from pyarrow import fs

from include.lake.errors import StatefulError
from include.lake.paths import Lake
from include.lake.process_tree import PROC, wait_until

log = logging.getLogger("lease")

CONDITIONAL = ("s3a://", "gs://", "abfss://")
LOOK_S = 1.0  # between two requests of one who waits
# Of a lock of the operating system, and the pause between two: half a second in all.
ATTEMPTS, ASKED_S = 50, 0.01
# What renews the leases that this process holds, of those that expire.
_EXPIRING: list[Callable[[], None]] = []


class LeaseTakenError(StatefulError):
    """Another process works on the same source or stream."""

    code = "lease_taken"


@contextmanager
def hold_lease(
    lake: Lake, name: str, patience: timedelta = timedelta(0), **told: Any
) -> Iterator[None]:
    """Hold the lease `name` (such as `ingest-signals`) while the body runs.

    `told`, as JSON, is what others read of the holder. Raises LeaseTakenError, naming the holder, when another process still holds it after
    `patience`.
    """
    if is_local(lake):
        hold: AbstractContextManager[None] = _hold_file(lake, name, patience, told)
    elif has_leases(lake):
        hold = _hold_object(lake, name, patience, told)
    else:
        log.warning("%s: there are no leases on such a lake: keep to one writer", lake.root)
        hold = nullcontext()
    with hold:
        yield


@contextmanager
def _hold_object(
    lake: Lake, name: str, patience: timedelta, told: dict[str, Any]
) -> Iterator[None]:
    from include.lake.object_lease import ObjectLease, holder_here, renewed

    lease, holder = ObjectLease(lake.root, name), holder_here(told)
    if not wait_until(lambda: lease.take(holder), patience.total_seconds(), LOOK_S):
        raise LeaseTakenError(
            f"another job works on {name}: {lease.holder() or 'it has just ended'}. Wait for it to "
            f"end, or stop it: {lease.expiry_s:.0f} seconds later the lease is free",
            subject=name,
        )
    with renewed(lease):
        _EXPIRING.append(lease.renew)
        try:
            yield
        finally:
            _EXPIRING.remove(lease.renew)


def check_held() -> None:
    """Before a commit that its table would take from anybody, at any time.

    To be called once the table is open: whoever takes the lease over later than this finds the
    commit made, or changes the table so that it fails. Raises LeaseLostError when a lease of this
    process has been taken over.
    """
    for renew in _EXPIRING:
        renew()


@contextmanager
def _hold_file(lake: Lake, name: str, patience: timedelta, told: dict[str, Any]) -> Iterator[None]:
    path = _path(lake, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    _refuse_deleted(path)
    with path.open("a+") as file:
        if not wait_until(lambda: _locked(file), patience.total_seconds()):
            file.seek(0)
            raise LeaseTakenError(
                f"another job works on {name}: {file.read() or 'holder unknown'}. "
                "Wait for it to end, or stop it",
                subject=name,
            )
        file.truncate(0)
        holder = {"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
        file.write(json.dumps(holder | told))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)  # who is refused because of one who only asks is not told of us


def _refuse_deleted(path: Path) -> None:
    """LeaseTakenError when a process has the lock file that somebody deleted: a new one is no lock.

    By what Linux says of open files; elsewhere nothing is known of it.
    """
    deleted = f"{path.parent.resolve() / path.name} (deleted)"
    for process in PROC.glob("[0-9]*"):
        if deleted in _open_files(process):
            raise LeaseTakenError(
                f"process {process.name} works on {path.stem}, and its lock {path} was deleted. Wait "
                "for it to end, or stop it; and leave the files of leases where they are",
                subject=path.stem,
            )


def _open_files(process: Path) -> set[str]:
    found = set()
    with suppress(OSError):  # it has ended, or is another user's
        # By names alone: a machine has some ten thousand of them, and each job asks of all.
        folder = f"{process}/fd"
        for link in os.listdir(folder):  # noqa: PTH208 (with a Path for each it takes three times as long)
            with suppress(FileNotFoundError):  # closed meanwhile
                found.add(os.readlink(f"{folder}/{link}"))  # noqa: PTH115
    return found


def is_local(lake: Lake) -> bool:
    return isinstance(lake.filesystem, fs.LocalFileSystem)


def has_leases(lake: Lake) -> bool:
    """Whether leases keep anybody apart: in a folder, and on stores that put on a condition."""
    return is_local(lake) or lake.root.startswith(CONDITIONAL)


def lease_holder(lake: Lake, name: str) -> str | None:
    """Who holds the lease `name`, as JSON; None when nobody does, or when there are no leases."""
    if not has_leases(lake):
        return None
    if not is_local(lake):
        from include.lake.object_lease import ObjectLease

        return ObjectLease(lake.root, name).holder()
    try:
        with _path(lake, name).open() as file:
            # Shared, and for a moment only: it takes nothing from the holder, or another asker, and
            # who wants to hold it tries again.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return _path(lake, name).read_text() or "holder unknown"
    return None


def _path(lake: Lake, name: str) -> Path:
    return Path(lake.path_in_filesystem(lake.root)) / "leases" / f"{name}.lock"


def _locked(file: TextIO) -> bool:
    """Whether it is ours now. Who asks for the holder has it for a moment: not by one attempt."""
    for _ in range(ATTEMPTS):
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(ASKED_S)
    return False
