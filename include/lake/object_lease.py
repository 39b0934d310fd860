"""A lease on an object store: one object, changed by conditional puts alone.

Its holder renews it. Once it has not for a minute, which is told by the store's clock, another job
takes it over: of several exactly one. So a killed holder is in nobody's way for long; and one that
was only stalled finds, when it wakes up, that it has lost the lease, and ends at once. Should it be
about to commit just then, the table's log keeps it out: by the batch's app transaction, which the
other one has written meanwhile, or the version, which is taken.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import from_url

from include.lake.errors import StatefulError, last_line
from include.lake.paths import LakeError

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

    def is_of(self, epoch: int, told: Mapping[str, Any] | None) -> bool:
        """Whether that holder has put it: whoever takes a lease over begins another epoch."""
        return self.said["epoch"] == epoch and self.holder == json.dumps(told)


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
        """What is there now; None of a lease that nobody has ever held. LakeError: it is none."""
        try:
            answer = obstore.get(self._store, self._path)
        except FileNotFoundError:
            return None
        meta = answer.meta
        said = self._read(bytes(answer.bytes()))
        return Found(said, _version(meta), meta["last_modified"])

    def _read(self, text: bytes) -> Mapping[str, Any]:
        """LakeError for what no lease of ours says."""
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        if not (isinstance(said, dict) and said.keys() >= {"put", "epoch", "holder"}):
            raise LakeError(
                f"{self.root}/{self._path} is no lease: somebody has written it. See that no job works "
                f"on {self.name}, delete it, and repeat",
                code="wrong_lease",
                subject=self.name,
            )
        return said

    def holder(self) -> str | None:
        """Who holds it, as JSON; None when it is free, or by our clock has expired. Writes nothing."""
        found = self.find()
        return None if found is None or self._is_old(found, datetime.now(UTC)) else found.holder

    def take(self, told: Mapping[str, Any]) -> bool:
        """Whether it was free, or had expired, and is now ours."""
        found = self.find()
        if found is None:
            return self._put(told, 1, "create")
        return self._is_free(found) and self._put(told, found.said["epoch"] + 1, found.version)

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
        is_ours = found is not None and found.is_of(self._epoch, self._told)
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

    def _is_free(self, found: Found) -> bool:
        return found.holder is None or self._is_old(found, self._store_now())

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


def holder_here(told: Mapping[str, Any]) -> dict[str, Any]:
    """What others read of this process."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now, **told}


@contextmanager
def renewed(lease: ObjectLease) -> Iterator[None]:
    """Renew a lease that was taken while the body runs, and then give it back.

    The process ends when the lease is lost meanwhile; LeaseLostError when that is seen at the end.
    """
    is_over = threading.Event()
    renewal = threading.Thread(target=_renew, args=(lease, is_over), daemon=True)
    renewal.start()
    try:
        yield
    finally:
        is_over.set()
        renewal.join()
        lease.give_back()


def _renew(lease: ObjectLease, is_over: threading.Event) -> None:
    renewed_at = _now_s()
    while not is_over.wait(lease.expiry_s / RENEWALS):
        try:
            lease.renew()
            renewed_at = _now_s()
        except (LeaseLostError, LakeError) as error:
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
