"""Heartbeats: when one is due, and the rows of bronze that the ingest job writes or holds back."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import micros_of
from include.ingest import ingest as ingestion
from include.ingest.ingest import (
    LAGGING,
    heartbeat,
    heartbeat_target,
    ingest,
    landing_lag,
    why_not_ingest,
)
from include.ingest.ingest_log import Ingestion
from include.ingest.parse_files import Counts
from include.ingest.source_connector import waiting
from include.ingest.watermark import SourceWatermark
from include.lake.delta_log import open_table
from include.lake.ops import Finding, read_ops
from include.lake.paths import Lake
from include.registry import source_named
from include.settings import Source
from include.stream.bronze import count_events
from tests.landed_files import START, Landing, signal
from tests.watermarks import HEARTBEAT_DELAY, HOUR, SIGNALS, in_order, version, watermark_of


def test_a_silent_source_gets_a_heartbeat_that_raises_the_watermark(lake: Lake, landed: Landing):
    landed.add("a.jsonl", [signal(0), "{", signal(1)])
    record: dict[str, Any] = {}
    assert ingest(lake, SIGNALS, record, START) == Counts(1, 1, 2, 1)
    end = START + HOUR
    record = {}
    assert ingest(lake, SIGNALS, record, end) == Counts()

    assert record == Counts().of_run()
    before = micros_of(START + timedelta(seconds=1))
    (*events, row) = in_order(lake)
    assert [event.is_heartbeat for event in events] == [False, False]
    assert vars(row) == {
        "device_id": None,
        "value": None,
        "event_time": micros_of(end - HEARTBEAT_DELAY),
        "event_date": START.date(),
        "ingested_at": row.ingested_at,
        "watermark_before": before,
        "watermark_after": micros_of(end - HEARTBEAT_DELAY),
        "source_file": None,
        "is_heartbeat": True,
        "_rescued_data": None,
    }
    assert watermark_of(lake) == SourceWatermark(micros_of(end - HEARTBEAT_DELAY), row.ingested_at)
    assert row.ingested_at > max(event.ingested_at for event in events)
    assert count_events(open_table(lake.bronze("signals"))) == 2


def test_the_job_takes_the_interval_of_its_dag_run_and_counts_no_heartbeat(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    folder = Path(lake.landing("service_logs"))
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text('{"service": "a", "timestamp": "2026-03-01T00:00:00Z"}\n')
    end = START + HOUR
    arguments = ["--source", "service_logs", "--lake", lake.root, "--interval-end", str(end)]
    monkeypatch.setattr("sys.argv", ["ingest", *arguments])
    ingestion.main()
    known = watermark_of(lake, source_named("service_logs"))
    assert known.watermark_us == micros_of(end - HEARTBEAT_DELAY)
    (run,) = read_ops(lake, "runs").to_pylist()
    assert (run["batches"], run["rows_landed"], run["rows_bronze"]) == (1, 1, 1)


def test_the_row_is_held_back_when_files_came_during_the_drain(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    landed.add("a.jsonl", [signal(0)])
    write_heartbeat = ingestion.write_heartbeat

    def write_behind_a_file(*given: Any) -> list[Finding]:
        landed.add("b.jsonl", [signal(1)])
        return write_heartbeat(*given)

    with monkeypatch.context() as patch:
        patch.setattr(ingestion, "write_heartbeat", write_behind_a_file)
        ingest(lake, SIGNALS, interval_end=START + HOUR)
    assert version(lake) == 1
    ingest(lake, SIGNALS, interval_end=START + HOUR)
    assert [row.is_heartbeat for row in in_order(lake)] == [False, False, True]


@pytest.mark.parametrize("is_table", [True, False])
def test_the_first_row_needs_data_or_an_initial_state(lake: Lake, landed: Landing, is_table: bool):
    seed = Path(lake.initial_state("device_signals"))
    seed.mkdir(parents=True)  # no table
    for name in ("user_counts", "unknown"):  # of another source, and of none
        (seed.parent / f"{name}.json").touch()
    assert ingest(lake, SIGNALS, interval_end=START) == Counts()
    assert (version(lake), watermark_of(lake)) == (0, SourceWatermark())
    if is_table:
        write_deltalake(seed, pa.table({"n": [1]}))
    else:
        seed.with_suffix(".json").touch()

    assert ingest(lake, SIGNALS, interval_end=START) == Counts()

    (row,) = in_order(lake)
    assert (row.is_heartbeat, row.watermark_before) == (True, None)
    assert row.watermark_after == row.event_time == micros_of(START - HEARTBEAT_DELAY)
    assert row.event_date == (START - HEARTBEAT_DELAY).date()
    landed.add("a.jsonl", [signal(0)])
    assert ingest(lake, SIGNALS, interval_end=START).rows_bronze == 1
    assert in_order(lake)[1].watermark_before == micros_of(START - HEARTBEAT_DELAY)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 3, 1, 5, tzinfo=UTC)
US = timedelta(microseconds=1)
MS = timedelta(milliseconds=1)

instants = st.integers(-(10**15), 4 * 10**15).map(lambda us: EPOCH + us * US)
delays = st.timedeltas(timedelta(0), timedelta(days=2))


@given(st.integers(-3, 3), instants, delays)
def test_a_heartbeat_never_says_more_than_is_known_and_is_not_written_twice(ahead_ms, end, delay):
    latest = end - delay
    watermark = latest - (latest - EPOCH) % MS + ahead_ms * MS
    source, nowhere = replace(SIGNALS, heartbeat_delay=delay), Lake("nowhere")
    target_us, _ = heartbeat_target(nowhere, source, micros_of(watermark), end)
    assert (target_us is not None) == (ahead_ms < 0)
    if target_us is not None:
        found = EPOCH + target_us * US
        assert watermark < found <= latest
        assert latest - found < MS
        assert (found - EPOCH) % MS == timedelta(0)
        assert heartbeat_target(nowhere, source, target_us, end) == (None, False)


# What is known of landing and of the streams.


def add_file(lake: Lake, name: str) -> Path:
    path = Path(lake.landing("signals")) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_landing_is_behind_while_files_wait_or_a_producer_says_so(lake: Lake):
    assert landing_lag(lake, SIGNALS) is None
    add_file(lake, f"deeper/{LAGGING}")  # only directly below the source
    assert landing_lag(lake, SIGNALS) is None
    marker = add_file(lake, LAGGING)
    assert waiting(lake, SIGNALS) == 0  # hidden: it is never ingested
    assert landing_lag(lake, SIGNALS) is not None
    marker.unlink()
    add_file(lake, "a.jsonl")
    add_file(lake, "b.jsonl")
    assert landing_lag(lake, SIGNALS) is not None


# What a Dag asks before it starts a JVM.


def why_not(lake: Lake, source: Source = SIGNALS, now: datetime = NOW) -> str | None:
    return why_not_ingest(lake, source, interval_end=None, now=now)


def test_ingest_runs_for_a_heartbeat_that_is_due(lake: Lake):
    assert why_not(lake) is not None  # bronze has no data yet, and no stream an initial state
    before, after = (
        SourceWatermark(),
        SourceWatermark(micros_of(NOW - HEARTBEAT_DELAY), micros_of(NOW)),
    )
    Ingestion(lake, SIGNALS).commit_rows(before, after, heartbeat(SIGNALS, before, after))
    assert why_not(lake) is not None  # the watermark is there already
    assert why_not_ingest(lake, SIGNALS, NOW + HOUR, NOW) is not None
    assert why_not(lake, now=NOW + MS) is None
    assert why_not(lake, replace(SIGNALS, heartbeat_delay=None)) is not None
    add_file(lake, LAGGING)
    assert why_not(lake, now=NOW + MS) is not None
    add_file(lake, "a.jsonl")
    assert why_not(lake) is None
