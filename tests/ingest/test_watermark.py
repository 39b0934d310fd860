"""When a heartbeat is due: the decision at equality, and what Dags read to make it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from include import registry
from include.fold.admission import micros_of
from include.ingest import ingest
from include.ingest.ingest import (
    LAGGING,
    has_initial_state,
    heartbeat,
    heartbeat_target,
    landing_lag,
    why_not_ingest,
)
from include.ingest.ingest_log import Ingestion
from include.ingest.source_connector import waiting
from include.ingest.watermark import SourceWatermark
from include.lake.paths import Lake
from include.registry import source_named, stream_named
from include.settings import Source

GRACE = timedelta(minutes=1)
SIGNALS = replace(source_named("signals"), heartbeat_delay=GRACE, max_clock_step=None)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 3, 1, 5, tzinfo=UTC)
US = timedelta(microseconds=1)
MS = timedelta(milliseconds=1)

instants = st.integers(-(10**15), 4 * 10**15).map(lambda us: EPOCH + us * US)
graces = st.timedeltas(timedelta(0), timedelta(days=2))


@pytest.fixture
def is_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "has_initial_state", lambda *_: True)


# The decision.


@pytest.mark.usefixtures("is_seeded")
def test_a_step_as_long_as_the_bound_is_not_bounded(lake: Lake):
    source = replace(SIGNALS, max_clock_step=timedelta(days=1))
    before = micros_of(NOW - GRACE - timedelta(days=1))
    exact = heartbeat_target(lake, source, before, None, NOW)
    assert exact == (micros_of(NOW - GRACE), False)
    beyond = heartbeat_target(lake, source, before - 1000, None, NOW)
    assert beyond == (micros_of(NOW - GRACE - MS), True)
    first = heartbeat_target(lake, source, None, None, NOW)  # nothing to hold it against
    assert first == (micros_of(NOW - GRACE), False)


@given(st.integers(-3, 3), st.none() | instants, instants, graces)
def test_a_row_never_says_more_than_is_known_and_is_not_written_twice(
    ahead_ms, interval_end, now, grace
):
    latest = min(now, interval_end or now) - grace
    watermark = latest - (latest - EPOCH) % MS + ahead_ms * MS
    source, nowhere = replace(SIGNALS, heartbeat_delay=grace), Lake("nowhere")
    asked = (interval_end, now)
    target_us, _ = heartbeat_target(nowhere, source, micros_of(watermark), *asked)
    assert (target_us is not None) == (ahead_ms < 0)
    if target_us is not None:
        found = EPOCH + target_us * US
        assert watermark < found <= latest
        assert latest - found < MS
        assert (found - EPOCH) % MS == timedelta(0)
        assert heartbeat_target(nowhere, source, target_us, *asked) == (None, False)


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


def test_an_initial_state_is_a_table_or_a_file_of_a_stream_of_the_source(lake: Lake, monkeypatch):
    streams = (
        replace(stream_named("device_signals"), name="first"),
        replace(stream_named("device_signals"), name="second"),
        replace(stream_named("user_counts"), name="other"),
    )
    monkeypatch.setattr(registry, "all_streams", lambda: streams)
    folder = Path(lake.initial_state("first")).parent
    folder.mkdir()
    (folder / "first").mkdir()  # no table
    (folder / "other.json").touch()  # of another source
    (folder / "unknown.json").touch()
    assert not has_initial_state(lake, SIGNALS)
    (folder / "second.json").touch()
    assert has_initial_state(lake, SIGNALS)
    (folder / "second.json").unlink()
    write_deltalake(lake.initial_state("first"), pa.table({"n": [1]}))
    assert has_initial_state(lake, SIGNALS)


def logged(lake: Lake, watermark: datetime) -> None:
    after = SourceWatermark(micros_of(watermark), micros_of(NOW))
    Ingestion(lake, SIGNALS).commit_rows(
        SourceWatermark(), after, heartbeat(SIGNALS, SourceWatermark(), after)
    )


# What a Dag asks before it starts a JVM.


def why_not(lake: Lake, source: Source = SIGNALS, now: datetime = NOW) -> str | None:
    return why_not_ingest(lake, source, interval_end=None, now=now)


def test_ingest_runs_for_a_heartbeat_that_is_due(lake: Lake):
    assert why_not(lake) is not None  # bronze has no data yet, and no stream an initial state
    logged(lake, NOW - GRACE)
    assert why_not(lake) is not None  # the watermark is there already
    assert why_not(lake, now=NOW + MS) is None
    assert why_not(lake, replace(SIGNALS, heartbeat_delay=None)) is not None
    add_file(lake, LAGGING)
    assert why_not(lake, now=NOW + MS) is not None
    add_file(lake, "a.jsonl")
    assert why_not(lake) is None
