"""One writer at a time, and how long another one waits for it."""

import fcntl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TextIO

import pytest

from include.lake import lease
from include.lake.lease import hold_lease
from tests.refused import refused


def test_who_has_patience_gets_the_lease_when_it_is_given_back(lake, monkeypatch):
    holder = hold_lease(lake, "ingest-signals")
    wait_until, attempts = lease.wait_until, []

    def give_back_after_the_first_attempt(condition, seconds):
        def attempt():
            got_it = condition()
            attempts.append(got_it)
            if len(attempts) == 1:
                holder.__exit__(None, None, None)
            return got_it

        return wait_until(attempt, seconds)

    holder.__enter__()
    monkeypatch.setattr(lease, "wait_until", give_back_after_the_first_attempt)
    with hold_lease(lake, "ingest-signals", timedelta(minutes=1)):
        assert attempts == [False, True]


@pytest.fixture
def asker(lake) -> Iterator[TextIO]:
    """Asks for the holder of the lease of ingest-signals, which was held, and is free."""
    with hold_lease(lake, "ingest-signals"):
        pass
    with Path(lake.root, "leases", "ingest-signals.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # as `lease_holder` does for a moment
        yield file


def test_who_asks_for_the_holder_keeps_nobody_from_taking_the_lease(lake, asker, monkeypatch):
    monkeypatch.setattr(lease.time, "sleep", lambda _: asker.close())
    with hold_lease(lake, "ingest-signals"):
        assert asker.closed


def test_who_held_the_lease_before_is_not_named_as_its_holder(lake, asker):
    with refused("lease_taken", subject="ingest-signals"), hold_lease(lake, "ingest-signals"):
        pass
    assert not asker.closed
