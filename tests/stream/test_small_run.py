"""The sharing of a JVM: small runs of a source that are due share a JVM; nobody waits for a large one."""

from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.maintain.tune_rocksdb import TRIED, Outcome, record_change
from include.registry import stream_named
from include.settings import Stream
from include.steps import STEPS, Start, StreamRun
from include.stream import open_stream as opening
from include.stream.open_stream import open_stream
from include.streams.user_counts import FOLD, UserEvent
from tests.bronze import append_commit, stamp
from tests.stream.entries import entry, record

COUNTS, SESSIONS, ALERTS = map(stream_named, ["user_counts", "user_sessions", "threshold_alerts"])
(STEP,) = (step for step in STEPS if step.name == "run_stream")


@pytest.fixture(autouse=True)
def _one_row_waits(lake):
    append_commit(lake, "user_events", FOLD, stamp([[UserEvent("ann", 1)]])[0])


def run_of(lake: Lake, stream: Stream, *due: Stream) -> StreamRun:
    return StreamRun(lake, stream, is_due=lambda other: other in due, dag_run_id="d1")


def drained_with(lake: Lake, stream: Stream, *due: Stream) -> set[str]:
    """The streams that the run's job is to drain as well."""
    with STEP.start(run_of(lake, stream, *due)) as start:
        assert list(start.arguments[:1]) == ["--also"] * bool(start.arguments)
        return set(start.arguments[1:])


def test_a_small_run_drains_what_is_due_of_its_source(lake):
    assert drained_with(lake, COUNTS, SESSIONS, ALERTS) == {"user_sessions", "threshold_alerts"}
    assert drained_with(lake, COUNTS, SESSIONS) == {"user_sessions"}
    assert drained_with(lake, COUNTS) == set()


def test_a_large_run_drains_no_other(lake, monkeypatch):
    monkeypatch.setattr(opening, "FETCHED_ROWS", 0)
    assert drained_with(lake, COUNTS, SESSIONS, ALERTS) == set()


def test_a_large_run_is_drained_by_no_other(lake, monkeypatch):
    """A stream that is new to the source, say: all others would wait for it."""
    monkeypatch.setattr(opening, "FETCHED_ROWS", 0)
    for read_all in (COUNTS, ALERTS):
        live = entry(1, "live", None, None, batch_id=0)
        record(lake, live, read_all.name, totals={"total_in": 1})
    assert drained_with(lake, COUNTS, SESSIONS, ALERTS) == {"threshold_alerts"}


def test_rows_are_merged_by_one_process_only_into_a_table_that_it_can_read(lake, monkeypatch):
    """To append, nobody reads any of it."""
    monkeypatch.setattr(opening, "MERGED_BYTES", 0)
    for stream in (COUNTS, SESSIONS):
        assert opening.is_small(open_stream(lake, stream))
        write_deltalake(lake.table(stream.name), pa.table({"n": [1]}))
    assert not opening.is_small(open_stream(lake, COUNTS))
    assert opening.is_small(open_stream(lake, SESSIONS))


def test_who_needs_another_jvm_is_not_drained_with_it(lake):
    """RocksDB's memory is the process's: a trial of the tuner would be judged by another's."""
    Path(lake.checkpoint(SESSIONS.name, 1)).mkdir(parents=True)
    record_change(lake, SESSIONS, Outcome(64, "a test", TRIED, 256))
    assert drained_with(lake, COUNTS, SESSIONS, ALERTS) == {"threshold_alerts"}


def test_what_is_wrong_with_a_lake_is_for_the_job_to_say(lake):
    log = Path(lake.table("user_sessions"), "_delta_log")
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("")
    assert drained_with(lake, COUNTS, SESSIONS, ALERTS) == {"threshold_alerts"}
    assert drained_with(lake, SESSIONS, COUNTS, ALERTS) == set()


def test_who_is_due_waits_for_one_that_has_begun_and_finds_itself_done(lake, monkeypatch):
    asked, found = Event(), list[Start]()

    def is_due(other: Stream) -> bool:
        asked.set()
        return True

    def follow() -> None:
        run = StreamRun(lake, SESSIONS, is_due=is_due, dag_run_id="d1")
        with STEP.start(run) as start:
            found.append(start)

    follower = Thread(target=follow)
    with STEP.start(run_of(lake, COUNTS, SESSIONS)):
        follower.start()
        assert asked.wait(60)
        # Neither who is due alone waits, nor who is of another time.
        assert drained_with(lake, ALERTS) == set()
        assert not found
        monkeypatch.setattr("include.stream.open_stream.has_waiting_rows", lambda *_: False)
        drained = {"run_id": "r1", "job": "run_stream", "subject": SESSIONS.name}
        ended = {"ended_at": datetime.now(UTC), "outcome": "succeeded"}
        append_ops(lake, "runs", [drained | ended | {"dag_run_id": "d1"}])
    follower.join(60)
    assert [start.is_done for start in found] == [True]
