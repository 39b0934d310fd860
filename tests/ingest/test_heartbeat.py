"""Heartbeats in bronze, as the ingest job writes them on real tables, or holds them back."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from include.fold.admission import micros_of
from include.ingest import ingest as ingestion
from include.ingest.ingest import ingest
from include.ingest.parse_files import Counts
from include.ingest.watermark import SourceWatermark
from include.lake.ops import Finding, read_ops
from include.lake.paths import Lake
from include.registry import source_named
from include.stream.record import count_events
from tests.landed_files import START, Landing, signal
from tests.watermarks import GRACE, HOUR, SIGNALS, in_order, version, watermark_of

pytestmark = pytest.mark.slow


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
        "event_time": micros_of(end - GRACE),
        "event_date": START.date(),
        "ingested_at": row.ingested_at,
        "watermark_before": before,
        "watermark_after": micros_of(end - GRACE),
        "source_file": None,
        "is_heartbeat": True,
        "_rescued_data": None,
    }
    assert watermark_of(lake) == SourceWatermark(micros_of(end - GRACE), row.ingested_at)
    assert row.ingested_at > max(event.ingested_at for event in events)
    assert count_events(lake, lake.bronze("signals"), version(lake)) == 2


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
    clock = watermark_of(lake, source_named("service_logs"))
    assert clock.watermark_us == micros_of(end - GRACE)
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


def test_the_first_row_needs_data_or_an_initial_state(lake: Lake, landed: Landing):
    assert ingest(lake, SIGNALS, interval_end=START) == Counts()
    assert (version(lake), watermark_of(lake)) == (0, SourceWatermark())
    seed = Path(lake.initial_state("device_signals")).with_suffix(".json")
    seed.parent.mkdir()
    seed.touch()

    assert ingest(lake, SIGNALS, interval_end=START) == Counts()

    (row,) = in_order(lake)
    assert (row.is_heartbeat, row.watermark_before) == (True, None)
    assert row.watermark_after == row.event_time == micros_of(START - GRACE)
    assert row.event_date == (START - GRACE).date()
    landed.add("a.jsonl", [signal(0)])
    assert ingest(lake, SIGNALS, interval_end=START).rows_bronze == 1
    assert in_order(lake)[1].watermark_before == micros_of(START - GRACE)
