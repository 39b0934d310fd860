"""Who runs for whom: one leads and the others wait; nobody waits for a large run."""

from collections import Counter
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from include.lake.errors import SettingsError
from include.maintain.tune_rocksdb import TRIED, Outcome, record_change
from include.registry import stream_named
from include.steps import STEPS, StreamRun
from include.stream import shared_jvm
from include.stream.open_stream import open_stream
from include.stream.shared_jvm import wait_while_led
from include.streams.user_counts import FOLD, UserEvent
from tests.bronze import append_commit, stamp
from tests.stream.ledgers import entry, record

COUNTS, SESSIONS, ALERTS = map(stream_named, ["user_counts", "user_sessions", "threshold_alerts"])


@pytest.fixture(autouse=True)
def _one_row_waits(lake):
    append_commit(lake, "user_events", FOLD, stamp([[UserEvent("ann", 1)]])[0])


def always(stream):
    return True


def same_jvm(stream):
    return "the same"


def lead(lake, stream, is_due, jvm_of=same_jvm):
    return shared_jvm.lead(lake, stream, is_due, jvm_of)


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


def test_a_large_run_is_taken_along_by_none(lake, monkeypatch):
    """A stream that is new to the source, say: all others would wait for it."""
    monkeypatch.setattr(shared_jvm, "FETCHED_ROWS", 0)
    for read_all in (COUNTS, ALERTS):
        live = entry(1, "live", None, None, batch_id=0)
        record(lake, live, read_all.name, totals={"total_in": 1})
    with lead(lake, COUNTS, always) as others:
        assert others == (ALERTS,)


def test_rows_are_merged_by_one_process_only_into_a_table_that_it_can_read(lake, monkeypatch):
    """To append, nobody reads any of it."""
    monkeypatch.setattr(shared_jvm, "MERGED_BYTES", 0)
    sessions = stream_named("user_sessions")
    for stream in (COUNTS, sessions):
        assert shared_jvm.is_small(open_stream(lake, stream))
        write_deltalake(lake.table(stream.name), pa.table({"n": [1]}))
    assert not shared_jvm.is_small(open_stream(lake, COUNTS))
    assert shared_jvm.is_small(open_stream(lake, sessions))


def test_who_needs_another_jvm_is_not_taken_along(lake):
    """RocksDB's memory is the process's: a trial of the tuner would be judged by another's."""
    with lead(lake, COUNTS, always, lambda stream: stream == SESSIONS) as others:
        assert others == (ALERTS,)
    run = StreamRun(lake, COUNTS, is_due=always)
    (step,) = (step for step in STEPS if step.name == "run_stream")
    with step.along(run) as arguments:
        assert sorted(arguments) == ["--also", "threshold_alerts", "user_sessions"]
    record_change(lake, SESSIONS, Outcome(64, "a test", TRIED, 256))
    with step.along(run) as arguments:
        assert arguments == ["--also", "threshold_alerts"]


def test_a_wrong_setting_of_another_stream_is_no_matter_of_this_one(lake):
    def jvm_of(stream):
        if stream == SESSIONS:
            raise SettingsError("rocksdb: no such setting")
        return "the same"

    with lead(lake, COUNTS, always, jvm_of) as others:
        assert others == (ALERTS,)


def test_who_has_run_before_it_could_wait_is_not_taken_along(lake):
    asked = Counter()

    def is_due_at_first(stream):
        asked[stream.name] += 1
        return asked[stream.name] == 1 or stream == ALERTS

    with lead(lake, COUNTS, is_due_at_first) as others:
        assert others == (ALERTS,)


def test_what_is_wrong_with_a_lake_is_for_the_job_to_say(lake):
    log = Path(lake.table("user_sessions"), "_delta_log")
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("")
    with lead(lake, COUNTS, always) as others:
        assert others == (ALERTS,)
    with lead(lake, SESSIONS, always) as others:
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
