"""Who runs for whom: one leads and the others wait; nobody waits for a large run."""

from threading import Event, Thread

import pytest

from include.lake.lease import hold_lease
from include.plans import shared_jvm
from include.plans.shared_jvm import lead, wait_while_led
from include.registry import stream_named
from include.streams.user_counts import FOLD, UserEvent
from tests.bronze import append_commit, stamp

COUNTS, SESSIONS, ALERTS = map(stream_named, ["user_counts", "user_sessions", "threshold_alerts"])


@pytest.fixture(autouse=True)
def _one_row_waits(lake):
    append_commit(lake, "user_events", FOLD, stamp([[UserEvent("ann", 1)]])[0])


def always(stream):
    return True


def test_a_small_run_takes_along_what_is_due_of_its_source(lake):
    with lead(lake, COUNTS, always) as others:
        assert {stream.name for stream in others} == {"user_sessions", "threshold_alerts"}
    with lead(lake, COUNTS, lambda stream: stream.name == "user_sessions") as others:
        assert others == (SESSIONS,)
    with lead(lake, COUNTS, lambda stream: False) as others:
        assert others == ()


def test_a_large_run_takes_none_along(lake, monkeypatch):
    monkeypatch.setattr(shared_jvm, "FETCHED_ROWS", 0)
    with lead(lake, COUNTS, always) as others:
        assert others == ()


def test_one_leads_at_a_time(lake):
    with lead(lake, COUNTS, always), lead(lake, SESSIONS, always) as others:
        assert others == ()
    with lead(lake, SESSIONS, always) as others:
        assert {stream.name for stream in others} == {"user_counts", "threshold_alerts"}


def test_who_is_taken_along_waits_for_the_end_and_nobody_else(lake, monkeypatch):
    looked, waited = Event(), []
    wait_until = shared_jvm.wait_until

    def wait(condition, *limits):
        looked.set()
        return wait_until(condition, *limits)

    monkeypatch.setattr(shared_jvm, "wait_until", wait)
    monkeypatch.setattr(shared_jvm, "LOOK_SECONDS", 0.01)
    follower = Thread(target=lambda: waited.append(wait_while_led(lake, SESSIONS)))
    with lead(lake, COUNTS, lambda stream: stream.name == "user_sessions"):
        wait_while_led(lake, COUNTS)
        wait_while_led(lake, ALERTS)
        looked.clear()
        follower.start()
        assert looked.wait(60)
        assert not waited
    follower.join(60)
    assert len(waited) == 1


def test_a_leader_that_has_not_said_whom_it_takes_along_is_asked_again(lake, monkeypatch):
    said = iter(["", '{"pid": 1, "streams": ["user_counts"]}'])
    monkeypatch.setattr(shared_jvm, "lease_holder", lambda *_: next(said))
    monkeypatch.setattr(shared_jvm, "LOOK_SECONDS", 0)
    wait_while_led(lake, SESSIONS)
    assert next(said, None) is None


def test_where_nothing_keeps_runs_apart_none_takes_others_along(lake, monkeypatch):
    monkeypatch.setattr(shared_jvm, "has_leases", lambda _: False)
    with lead(lake, COUNTS, always) as others, hold_lease(lake, "jvm-user_events"):
        assert others == ()
