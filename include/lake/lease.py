"""Leases: one writer at a time per source and per stream, by a locked file, or by an object in a store.

On a local lake it is a lock of the operating system, so it goes with its holder; on an object
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
from contextlib import contextmanager, suppress
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
LOOK_S = 1.0  # between two requests while waiting
ASKED_S = 0.5  # the least patience for a lock file: `lease_holder` locks it for a moment
# These renew the leases of this process that expire.
_EXPIRING: list[Callable[[], None]] = []


def wait_until(condition: Callable[[], bool], seconds: float, interval: float = 0.1) -> bool:
    """Wait for `condition`; True if it came true within `seconds`."""
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

    LeaseTakenError, naming the holder, when another process still holds it after `patience`.
    """
    if not has_leases(lake):
        log.warning("%s: there are no leases on such a lake: keep to one writer", lake.root)
        yield
        return
    with (_hold_file if lake.is_local else _hold_object)(lake, name, patience):
        yield


@contextmanager
def _hold_object(lake: Lake, name: str, patience: timedelta) -> Iterator[None]:
    lease, holder = ObjectLease(lake.root, name), holder_here()
    if not wait_until(lambda: lease.take(holder), patience.total_seconds(), LOOK_S):
        raise _taken(name, lease.holder(), f": {EXPIRY_S:.0f} seconds later the lease is free")
    with renewed(lease):
        yield


def _taken(name: str, holder: str | None, then: str = "") -> LeaseTakenError:
    said = f"another job works on {name}: {holder or 'holder unknown'}"
    return LeaseTakenError(f"{said}. Wait for it to end, or stop it{then}", subject=name)


def check_held() -> None:
    """Raise LeaseLostError when a lease of this process has been taken over: call it before a commit that
    replaces rows."""
    for renew in _EXPIRING:
        renew()


@contextmanager
def _hold_file(lake: Lake, name: str, patience: timedelta) -> Iterator[None]:
    path = _path(lake, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        if not wait_until(lambda: _locked(file), max(patience.total_seconds(), ASKED_S)):
            raise _taken(name, path.read_text())
        file.truncate(0)
        file.write(json.dumps(holder_here()))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)  # or it would name us while another only asks for the holder


def has_leases(lake: Lake) -> bool:
    """True if the lake has leases: in a folder, and on stores with conditional puts."""
    return lake.is_local or lake.root.startswith(CONDITIONAL)


def lease_holder(lake: Lake, name: str) -> str | None:
    """Return the holder of the lease `name`, as JSON; None when nobody holds it, or there are no leases."""
    if not has_leases(lake):
        return None
    if not lake.is_local:
        return ObjectLease(lake.root, name).holder()
    try:
        with _path(lake, name).open() as file:
            # Shared, for a moment: a job that wants to hold it tries again.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return _path(lake, name).read_text() or "holder unknown"
    return None


def _path(lake: Lake, name: str) -> Path:
    return Path(lake.path_in_filesystem(lake.root)) / "leases" / f"{name}.lock"


def _locked(file: TextIO) -> bool:
    """Try to lock the file; True if it is ours now."""
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


EXPIRY_S = 60.0
# It also counts the time in which the machine sleeps, where there is such a clock.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
RENEWALS = 6  # tried within that time
# A store's answers to a condition that does not hold; the last of an object that was deleted.
NOT_AS_ASKED = (AlreadyExistsError, PreconditionError, FileNotFoundError)


class LeaseLostError(StatefulError):
    """Another job has taken the lease over: its holder had not renewed it."""

    code = "lease_lost"
    exit_code = 1


class Found(NamedTuple):
    """A lease's object, and its version, which a conditional put asks for."""

    lease: str  # its holder's own id
    holder: Mapping[str, Any] | None  # None: it was given back
    version: dict[str, str]
    changed_at: datetime


@dataclass
class ObjectLease:
    """The lease `name` of the lake at `root`, a URI."""

    root: str
    name: str
    expiry_s: float = EXPIRY_S

    def __post_init__(self) -> None:
        self._store = from_url(self.root)
        self._path = f"leases/{self.name}.json"
        self._own = uuid4().hex
        self._version: dict[str, str] | None = None
        self._turn = threading.Lock()

    def find(self) -> Found | None:
        """Read the object; None of a lease that nobody has ever held."""
        try:
            answer = obstore.get(self._store, self._path)
        except FileNotFoundError:
            return None
        said, meta = json.loads(bytes(answer.bytes())), answer.meta
        return Found(said["lease"], said["holder"], _version(meta), meta["last_modified"])

    def holder(self) -> str | None:
        """Return the holder as JSON; None when it is free, or has expired by our clock. Writes nothing."""
        found = self.find()
        is_held = found is not None and not self._is_free(found, datetime.now(UTC))
        return _holder_in(found) if found is not None and is_held else None

    def take(self, holder: Mapping[str, Any]) -> bool:
        """Take the lease; True if it was free, or had expired, and is ours now."""
        self._holder, found = holder, self.find()
        if found is None:
            return self._put(holder, "create")
        return self._is_free(found, self._store_now()) and self._put(holder, found.version)

    def renew(self) -> None:
        """Renew the lease; LeaseLostError when it is not ours any more."""
        self._put_ours(self._holder)

    def give_back(self) -> None:
        """Free the lease; LeaseLostError when it was not ours any more."""
        self._put_ours(None)

    def _put_ours(self, holder: Mapping[str, Any] | None) -> None:
        with self._turn:
            if self._put(holder, self._version):
                return
        found = self.find()
        raise LeaseLostError(
            f"this job stood still for more than {self.expiry_s:.0f} seconds, and lost {self.name} to "
            f"another one ({_holder_in(found) if found else 'the lease was deleted'}), which did its "
            "work: look at that one, and repeat this command if it is still needed",
            subject=self.name,
        )

    def _put(self, holder: Mapping[str, Any] | None, mode: Any) -> bool:
        """Put the holder; False when the object was not as `mode` asks, and not ours."""
        # With an id of its own, as a store may compute an object's version from its bytes.
        said = json.dumps({"put": uuid4().hex, "lease": self._own, "holder": holder})
        try:
            put = obstore.put(self._store, self._path, said.encode(), mode=mode)
        except NOT_AS_ASKED:
            found = self.find()  # it is ours where the answer to a put was lost
            is_ours = found and found.lease == self._own
            return self._put(holder, found.version) if found and is_ours else False
        self._version = _version(put)
        return True

    def _is_free(self, found: Found, now: datetime) -> bool:
        is_old = (now - found.changed_at).total_seconds() > self.expiry_s
        return found.holder is None or is_old

    def _store_now(self) -> datetime:
        """Return the time by the store's clock, as that of this machine may go wrong."""
        path = f"leases/{self.name}.asked"
        obstore.put(self._store, path, b"")
        now: datetime = obstore.head(self._store, path)["last_modified"]
        return now


def _holder_in(found: Found) -> str:
    return json.dumps(found.holder)


def _version(meta: Any) -> dict[str, str]:
    """Return the version of an object: some stores have one of these alone."""
    return {name: meta[name] for name in ("e_tag", "version") if meta[name] is not None}


def holder_here() -> dict[str, Any]:
    """Return what other jobs read of this process."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now}


@contextmanager
def renewed(lease: ObjectLease) -> Iterator[None]:
    """Renew a lease while the body runs, and then give it back; the process ends when it is lost meanwhile."""
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
    renewed_at = time.clock_gettime(CLOCK)
    while not is_over.wait(lease.expiry_s / RENEWALS):
        try:
            lease.renew()
            renewed_at = time.clock_gettime(CLOCK)
        except LeaseLostError as error:
            _end(last_line(error))
        except (BaseError, OSError) as error:
            if time.clock_gettime(CLOCK) - renewed_at > lease.expiry_s:
                said = f"the lease {lease.name} could not be renewed ({error}): repeat the command"
                _end(f"error: {said} (lease_lost)")


def _end(reason: str) -> None:
    """End the process at once, whatever it does: another job does its work now."""
    sys.stderr.write(f"{reason}\n")
    sys.stderr.flush()
    os._exit(1)
