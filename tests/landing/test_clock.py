"""When a clock row is due: the decision at equality, and what Dags read to make it."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from include import registry
from include.fold.admission import micros_of
from include.lake.paths import Lake
from include.landing import clock
from include.landing.clock import (
    COMMITS_LOOKED_AT,
    LAGGING,
    Clock,
    has_initial_state,
    landing_lag,
    plan_clock_row,
    read_logged_clock,
    why_not_ingest,
)
from include.landing.ingest_position import files_waiting
from include.registry import source_named, stream_named
from include.settings import Source

GRACE = timedelta(minutes=1)
SIGNALS = replace(source_named("signals"), clock_grace=GRACE, max_clock_step=None)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 3, 1, 5, tzinfo=UTC)
US = timedelta(microseconds=1)
MS = timedelta(milliseconds=1)

instants = st.integers(-(10**15), 4 * 10**15).map(lambda us: EPOCH + us * US)
graces = st.timedeltas(timedelta(0), timedelta(days=2))


def target(
    watermark: datetime | None = datetime(2026, 1, 1, tzinfo=UTC),
    interval_end: datetime | None = NOW,
    now: datetime = NOW,
    source: Source = SIGNALS,
    has_seed: bool = False,
    lag: str | None = None,
) -> datetime | None:
    watermark_us = None if watermark is None else micros_of(watermark)
    plan = plan_clock_row(source, watermark_us, has_seed, lag, interval_end, now)
    return None if plan.target_us is None else EPOCH + plan.target_us * US


# The decision.


def test_the_row_goes_by_the_interval_or_by_now_if_that_is_earlier():
    assert target(interval_end=NOW) == NOW - GRACE
    assert target(interval_end=NOW - US, now=NOW) == NOW - GRACE - MS
    assert target(interval_end=NOW, now=NOW + US) == NOW - GRACE
    assert target(interval_end=NOW + timedelta(days=365)) == NOW - GRACE  # a run of the future
    assert target(interval_end=None) == NOW - GRACE  # a run without a logical date
    assert target(interval_end=datetime(2025, 1, 1, tzinfo=UTC)) is None  # a run of the past


def test_there_is_no_row_that_would_not_raise_the_watermark():
    at = NOW - GRACE
    assert target(watermark=at) is None
    assert target(watermark=at + MS) is None
    assert target(watermark=at - MS) == at
    # Less than a millisecond above the watermark is floored to it.
    assert target(watermark=at, now=NOW + MS - US, interval_end=None) is None
    assert target(watermark=at, now=NOW + MS, interval_end=None) == at + MS
    assert target(watermark=at, now=NOW - timedelta(hours=1)) is None  # the clock went back


def test_there_is_no_row_before_the_first_data_unless_there_is_an_initial_state():
    assert target(watermark=None) is None
    assert target(watermark=None, has_seed=True) == NOW - GRACE


def test_there_is_no_row_for_a_source_without_a_clock():
    assert target(source=replace(SIGNALS, clock_grace=None), has_seed=True) is None
    assert target(source=replace(SIGNALS, clock_grace=timedelta(0))) == NOW


def test_the_row_is_held_back_while_landing_is_behind_and_the_reason_says_so():
    plan = plan_clock_row(SIGNALS, 0, False, "2 files came", None, NOW)
    assert plan == (None, "it is held back, as 2 files came", False)


def test_one_run_moves_the_watermark_by_one_step_at_most():
    """A machine whose clock is 400 days ahead, and a source that comes back after 400 days."""
    source = replace(SIGNALS, max_clock_step=timedelta(days=2))
    before = NOW - GRACE
    ahead = NOW + timedelta(days=400)
    found = plan_clock_row(source, micros_of(before), False, None, None, ahead)
    assert (found.target_us, found.is_bounded) == (micros_of(before + timedelta(days=2)), True)
    assert "one run moves the watermark on by at most 2 days, 0:00:00 (max_clock_step)" in found.why
    watermark, runs = before, 0
    while (reached := target(watermark, interval_end=None, now=ahead, source=source)) is not None:
        assert reached - watermark <= timedelta(days=2)
        watermark, runs = reached, runs + 1
    assert (watermark, runs) == (ahead - GRACE, 200)


def test_a_step_as_long_as_the_bound_is_not_bounded():
    source = replace(SIGNALS, max_clock_step=timedelta(days=1))
    before = micros_of(NOW - GRACE - timedelta(days=1))
    exact = plan_clock_row(source, before, False, None, None, NOW)
    assert (exact.target_us, exact.is_bounded) == (micros_of(NOW - GRACE), False)
    beyond = plan_clock_row(source, before - 1000, False, None, None, NOW)
    assert (beyond.target_us, beyond.is_bounded) == (micros_of(NOW - GRACE - MS), True)
    first = plan_clock_row(source, None, True, None, None, NOW)  # nothing to hold it against
    assert (first.target_us, first.is_bounded) == (micros_of(NOW - GRACE), False)


@given(st.integers(-3, 3), st.none() | instants, instants, graces, st.booleans())
def test_a_row_never_says_more_than_is_known_and_is_not_written_twice(
    ahead_ms, interval_end, now, grace, has_seed
):
    latest = min(now, interval_end or now) - grace
    watermark = latest - (latest - EPOCH) % MS + ahead_ms * MS
    source = replace(SIGNALS, clock_grace=grace)
    args = {"interval_end": interval_end, "now": now, "source": source, "has_seed": has_seed}
    found = target(watermark, **args)
    assert (found is not None) == (ahead_ms < 0)
    if found is not None:
        assert watermark < found <= latest
        assert latest - found < MS
        assert (found - EPOCH) % MS == timedelta(0)
        assert target(found, **args) is None


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
    assert files_waiting(lake, "signals") == 0  # hidden: it is never ingested
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


# The clock in bronze's log.


def commit(lake: Lake, metadata: str | None) -> None:
    properties = metadata and CommitProperties(custom_metadata={"userMetadata": metadata})
    write_deltalake(
        lake.bronze("signals"),
        pa.table({"n": [1]}),
        mode="append",
        commit_properties=properties or None,
    )


def logged(lake: Lake, watermark: datetime) -> None:
    commit(lake, json.dumps(Clock(micros_of(watermark), micros_of(NOW)).metadata()))


def test_the_clock_is_read_from_the_newest_commit(lake: Lake):
    assert read_logged_clock(lake, SIGNALS) == Clock(None, None)
    for watermark in (NOW, NOW + MS):
        logged(lake, watermark)
        assert read_logged_clock(lake, SIGNALS) == Clock(micros_of(watermark), micros_of(NOW))


@pytest.mark.parametrize("metadata", [None, "by hand", "[]", "{}"])
def test_a_commit_that_does_not_say_leaves_the_clock_unknown(lake: Lake, metadata):
    logged(lake, NOW)
    commit(lake, metadata)
    assert read_logged_clock(lake, SIGNALS) is None


def test_the_clock_is_unknown_behind_many_commits_without_rows(lake: Lake, monkeypatch):
    monkeypatch.setattr(clock, "COMMITS_WITHOUT_ROWS", {"WRITE"})
    logged(lake, NOW)
    for _ in range(COMMITS_LOOKED_AT - 1):
        commit(lake, None)
    assert read_logged_clock(lake, SIGNALS) == Clock(micros_of(NOW), micros_of(NOW))
    commit(lake, None)
    assert read_logged_clock(lake, SIGNALS) is None


# What a Dag asks before it starts a JVM.


def why_not(lake: Lake, source: Source = SIGNALS, now: datetime = NOW) -> str | None:
    return why_not_ingest(lake, source, interval_end=None, now=now)


def test_ingest_runs_for_a_clock_row_that_is_due(lake: Lake):
    assert why_not(lake) is not None  # bronze has no data yet, and no stream an initial state
    logged(lake, NOW - GRACE)
    assert why_not(lake) is not None  # the watermark is there already
    assert why_not(lake, now=NOW + MS) is None
    assert why_not(lake, replace(SIGNALS, clock_grace=None)) is not None
    add_file(lake, LAGGING)
    assert why_not(lake, now=NOW + MS) is not None
    add_file(lake, "a.jsonl")
    assert why_not(lake) is None


def test_ingest_runs_when_only_it_can_tell(lake: Lake):
    logged(lake, NOW)
    commit(lake, None)
    assert why_not(lake) is None
    assert why_not(lake, replace(SIGNALS, clock_grace=None)) is not None
