"""One writer at a time, and how long another one waits for it."""

from datetime import timedelta

import pytest

from include.lake import lease
from include.lake.lease import LeaseTakenError, hold_lease


def test_a_lease_that_is_taken_names_its_holder(lake):
    with (
        hold_lease(lake, "stream-user_counts"),
        pytest.raises(LeaseTakenError, match=r'works on stream-user_counts: \{"pid": \d+'),
        hold_lease(lake, "stream-user_counts"),
    ):
        pass


def test_leases_of_other_names_are_free(lake):
    with hold_lease(lake, "stream-user_counts"), hold_lease(lake, "stream-user_sessions"):
        pass


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
