"""Leases: one writer at a time per source and per stream, by a locked file, or by an object in a store.

Airflow's pools keep its own tasks apart; the lease also keeps a job started by hand
apart from one that Airflow started. On a local lake it is a lock of the operating
system, so it goes with its holder: nothing has to be taken over after a kill. On an object
store it expires.
"""

import fcntl
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import from_url

from include.lake.errors import StatefulError, last_line
from include.lake.paths import Lake

log = logging.getLogger("lease")
CONDITIONAL = ("s3a://", "gs://", "abfss://")
LOOK_S = 1.0  # between two requests of one who waits
# Of a lock of the operating system, and the pause between two: half a second in all.
ATTEMPTS, ASKED_S = 50, 0.01
# What renews the leases that this process holds, of those that expire.
_EXPIRING: list[Callable[[], None]] = []


def wait_until(condition: Callable[[], bool], seconds: float, interval: float = 0.1) -> bool:
    """Whether `condition` came true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval)
    return True


class LeaseTakenError(StatefulError):
    """Another process works on the same source or stream."""

    code = "lease_taken"


@contextmanager
def hold_lease(lake: Lake, name: str, patience: timedelta = timedelta(0)) -> Iterator[None]:
    """Hold the lease `name` (such as `ingest-signals`) while the body runs.

    Raises LeaseTakenError, naming the holder, when another process still holds it after
    `patience`.
    """
    if lake.is_local:
        hold: AbstractContextManager[None] = _hold_file(lake, name, patience)
    elif has_leases(lake):
        hold = _hold_object(lake, name, patience)
    else:
        log.warning("%s: there are no leases on such a lake: keep to one writer", lake.root)
        hold = nullcontext()
    with hold:
        yield


@contextmanager
def _hold_object(lake: Lake, name: str, patience: timedelta) -> Iterator[None]:
    lease, holder = ObjectLease(lake.root, name), holder_here()
    if not wait_until(lambda: lease.take(holder), patience.total_seconds(), LOOK_S):
        raise LeaseTakenError(
            f"another job works on {name}: {lease.holder() or 'it has just ended'}. Wait for it to "
            f"end, or stop it: {lease.expiry_s:.0f} seconds later the lease is free",
            subject=name,
        )
    with renewed(lease):
        yield


def check_held() -> None:
    """Before a commit that its table would take from anybody, at any time.

    To be called once the table is open: whoever takes the lease over later than this finds the
    commit made, or changes the table so that it fails. Raises LeaseLostError when a lease of this
    process has been taken over.
    """
    for renew in _EXPIRING:
        renew()


@contextmanager
def _hold_file(lake: Lake, name: str, patience: timedelta) -> Iterator[None]:
    path = _path(lake, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        if not wait_until(lambda: _locked(file), patience.total_seconds()):
            file.seek(0)
            raise LeaseTakenError(
                f"another job works on {name}: {file.read() or 'holder unknown'}. "
                "Wait for it to end, or stop it",
                subject=name,
            )
        file.truncate(0)
        file.write(json.dumps(holder_here()))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)  # who is refused because of one who only asks is not told of us


def has_leases(lake: Lake) -> bool:
    """Whether leases keep anybody apart: in a folder, and on stores that put on a condition."""
    return lake.is_local or lake.root.startswith(CONDITIONAL)


def lease_holder(lake: Lake, name: str) -> str | None:
    """Who holds the lease `name`, as JSON; None when nobody does, or when there are no leases."""
    if not has_leases(lake):
        return None
    if not lake.is_local:
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


EXPIRY_S = 60.0
RENEWALS = 6  # tried within that time
# What a store says of a condition; the last of an object that was deleted.
NOT_AS_ASKED = (AlreadyExistsError, PreconditionError, FileNotFoundError)


class LeaseLostError(StatefulError):
    """Another job has taken the lease over: its holder had not renewed it."""

    code = "lease_lost"
    exit_code = 1


class Found(NamedTuple):
    """What the object says, and the state of it that a conditional put asks for."""

    said: Mapping[str, Any]
    version: dict[str, str]
    changed_at: datetime

    @property
    def holder(self) -> str | None:
        holder = self.said["holder"]
        return None if holder is None else json.dumps(holder)


@dataclass
class ObjectLease:
    """The lease `name` of the lake at `root`, a URI."""

    root: str
    name: str
    expiry_s: float = EXPIRY_S

    def __post_init__(self) -> None:
        self._store = from_url(self.root)
        self._path = f"leases/{self.name}.json"
        self._version: dict[str, str] | None = None
        self._turn = threading.Lock()

    def find(self) -> Found | None:
        """What is there now; None of a lease that nobody has ever held."""
        try:
            answer = obstore.get(self._store, self._path)
        except FileNotFoundError:
            return None
        meta = answer.meta
        return Found(json.loads(bytes(answer.bytes())), _version(meta), meta["last_modified"])

    def holder(self) -> str | None:
        """Who holds it, as JSON; None when it is free, or by our clock has expired. Writes nothing."""
        found = self.find()
        return None if found is None or self._is_old(found, datetime.now(UTC)) else found.holder

    def take(self, told: Mapping[str, Any]) -> bool:
        """Whether it was free, or had expired, and is now ours."""
        found = self.find()
        if found is None:
            return self._put(told, 1, "create")
        is_free = found.holder is None or self._is_old(found, self._store_now())
        return is_free and self._put(told, found.said["epoch"] + 1, found.version)

    def renew(self) -> None:
        """LeaseLostError when it is not ours any more."""
        with self._turn:
            self._put_ours(self._told)

    def give_back(self) -> None:
        """LeaseLostError when it was not ours any more."""
        with self._turn:
            self._put_ours(None)

    def _put_ours(self, told: Mapping[str, Any] | None) -> None:
        assert self._version is not None, "was never taken"
        if self._put(told, self._epoch, self._version):
            return
        found = self.find()
        # A renewal that failed may have been made all the same: its answer was lost.
        # Whoever takes a lease over begins another epoch.
        ours = (self._epoch, json.dumps(self._told))
        is_ours = found is not None and (found.said["epoch"], found.holder) == ours
        if not (found and is_ours and self._put(told, self._epoch, found.version)):
            raise LeaseLostError(
                f"this job stood still for more than {self.expiry_s:.0f} seconds, and lost {self.name} to "
                f"another one ({found.holder if found else 'the lease was deleted'}), which did its "
                "work: look at that one, and repeat this command if it is still needed",
                subject=self.name,
            )

    def _put(self, told: Mapping[str, Any] | None, epoch: int, mode: Any) -> bool:
        """Whether the object was as `mode` asks, and now says this."""
        # Of each put its own, as a store may tell the states of an object by its bytes.
        said = {"put": uuid4().hex, "epoch": epoch, "holder": told}
        try:
            put = obstore.put(self._store, self._path, json.dumps(said).encode(), mode=mode)
            version = _version(put)
        except NOT_AS_ASKED:
            found = self.find()
            if found is None or found.said["put"] != said["put"]:
                return False
            version = found.version  # the answer to our first try was lost
        self._version, self._epoch, self._told = version, epoch, told
        return True

    def _is_old(self, found: Found, now: datetime) -> bool:
        return (now - found.changed_at).total_seconds() > self.expiry_s

    def _store_now(self) -> datetime:
        """By the store's clock, as that of this machine may go wrong."""
        path = f"leases/{self.name}.asked"
        obstore.put(self._store, path, b"")
        now: datetime = obstore.head(self._store, path)["last_modified"]
        return now


def _version(told: Any) -> dict[str, str]:
    """The state of an object, by what its store tells of it: some have one of these alone."""
    return {name: told[name] for name in ("e_tag", "version") if told[name] is not None}


def holder_here() -> dict[str, Any]:
    """What others read of this process."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now}


@contextmanager
def renewed(lease: ObjectLease) -> Iterator[None]:
    """Renew a lease that was taken while the body runs, and then give it back.

    The process ends when the lease is lost meanwhile; LeaseLostError when that is seen at the end.
    """
    is_over = threading.Event()
    renewal = threading.Thread(target=_renew, args=(lease, is_over), daemon=True)
    renewal.start()
    _EXPIRING.append(lease.renew)
    try:
        yield
    finally:
        _EXPIRING.remove(lease.renew)
        is_over.set()
        renewal.join()
        lease.give_back()


def _renew(lease: ObjectLease, is_over: threading.Event) -> None:
    renewed_at = _now_s()
    while not is_over.wait(lease.expiry_s / RENEWALS):
        try:
            lease.renew()
            renewed_at = _now_s()
        except LeaseLostError as error:
            _end(last_line(error))
        except (BaseError, OSError) as error:
            if _now_s() - renewed_at > lease.expiry_s:
                _end(
                    f"error: the lease {lease.name} could not be renewed ({error}): repeat the command (lease_lost)"
                )


def _now_s() -> float:
    """Of a clock that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _end(reason: str) -> None:
    """End the process, whatever it is doing: what it does is not its to do any more."""
    sys.stderr.write(f"{reason}\n")
    sys.stderr.flush()
    os._exit(1)
