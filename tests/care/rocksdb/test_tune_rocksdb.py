"""The tuner over a lake: what it reads, writes, says; and a real series of runs."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from include.care.rocksdb.profile import active_profile, profile_for_run, record_profile
from include.care.rocksdb.tune_rocksdb import format_outcome, tune_rocksdb
from include.lake.ops import append_ops, read_ops
from include.registry import stream_named
from include.settings import GIB, SettingsError
from tests.care.rocksdb.simulated import Simulation, needs_memory

STREAM = stream_named("user_counts")
MACHINE = 16 * GIB
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def write_series(lake, batches, runs) -> None:
    """Rows of `ops/batches` and `ops/runs` as a stream's runs leave them."""
    known = {"stream": STREAM.name, "generation": 1}
    append_ops(lake, "batches", [known | batch for batch in batches])
    times = {"started_at": NOON, "ended_at": NOON, "subject": STREAM.name}
    append_ops(lake, "runs", [times | run for run in runs])


def poor_lake(lake, runs: int = 20):
    """A lake after runs under a profile with too little memory."""
    simulation = Simulation.starting_from({"maxMemoryUsageMB": "16"}, needs_memory(60))
    for _ in range(runs):
        simulation.drain()
    profile = active_profile(lake, STREAM, MACHINE)
    poor = replace(profile, settings={**profile.settings, "maxMemoryUsageMB": "16"})
    record_profile(lake, STREAM, poor, now=NOON)
    write_series(lake, simulation.batches, simulation.runs)
    return lake


def profiles(lake):
    rows = read_ops(lake, "rocksdb_profiles", {"stream": STREAM.name}).to_pylist()
    return sorted(rows, key=lambda row: row["profile"])


def test_a_stream_that_never_ran_has_an_outcome_too(lake):
    outcome = tune_rocksdb(lake, STREAM)
    assert outcome.kind == "nothing"
    assert "which the next run records" in format_outcome(outcome)
    assert not lake.is_delta_table(lake.ops("rocksdb_profiles"))


def test_a_proposal_is_on_record_and_the_next_run_has_it(lake):
    outcome = tune_rocksdb(poor_lake(lake), STREAM, machine_bytes=MACHINE, now=NOON)
    assert outcome.kind == "proposed"
    default, trial = profiles(lake)
    assert (default["verdict"], trial["verdict"], trial["profile"]) == ("default", "trial", 2)
    assert "writeBufferCacheRatio 0.5 to 0.8: a batch flushes" in trial["reason"]
    assert json.loads(trial["evidence"])["figure"] == "bytes_rewritten"
    assert active_profile(lake, STREAM, MACHINE).number == 2
    again = tune_rocksdb(lake, STREAM, machine_bytes=MACHINE)
    assert (again.kind, len(profiles(lake))) == ("waiting", 2)


def test_a_dry_run_decides_the_same_and_writes_nothing(lake):
    poor_lake(lake)
    before = profiles(lake)
    dry = tune_rocksdb(lake, STREAM, dry_run=True, machine_bytes=MACHINE)
    assert profiles(lake) == before
    assert active_profile(lake, STREAM, MACHINE).number == 1
    assert tune_rocksdb(lake, STREAM, machine_bytes=MACHINE) == dry


def test_a_verdict_is_on_record_with_its_judgement(lake):
    tune_rocksdb(poor_lake(lake), STREAM, machine_bytes=MACHINE, now=NOON)
    failed = {"run_id": "x", "job": "run_stream", "subject": STREAM.name, "outcome": "failed"}
    append_ops(lake, "runs", [failed | {"started_at": NOON, "ended_at": NOON}])
    outcome = tune_rocksdb(lake, STREAM, machine_bytes=MACHINE, now=NOON + timedelta(hours=1))
    assert outcome.kind == "rolled_back"
    row = profiles(lake)[1]
    assert (row["verdict"], row["judged_at"]) == ("rolled_back", NOON + timedelta(hours=1))
    assert "a run failed" in row["judgement"]


def test_the_table_shows_decision_settings_and_where_the_time_goes(lake):
    stream = replace(STREAM, rocksdb={"compression": "lz4", "writeBufferCacheRatio": "0.5"})
    profile_for_run(poor_lake(lake), stream)
    text = format_outcome(tune_rocksdb(lake, stream, dry_run=True))
    lines = [line.split() for line in text.splitlines()]
    assert ["compression", "lz4", "hand"] in lines
    assert ["writeBufferCacheRatio", "0.5", "hand"] in lines
    assert ["maxMemoryUsageMB", "16", "tuner"] in lines


def test_a_table_of_figures_has_times_counters_and_sizes(lake):
    text = format_outcome(tune_rocksdb(poor_lake(lake), STREAM, dry_run=True))
    for title in ("load of the stores", "get", "upload", "flushed and compacted", "memory of"):
        assert title in text
    assert "the whole batch" in text
    assert "3,000 ms" in text


def test_an_impossible_hand_setting_is_an_error_of_the_caller(lake):
    with pytest.raises(SettingsError, match="unknown rocksdb setting"):
        tune_rocksdb(lake, replace(STREAM, rocksdb={"blockSize": "1"}))


def test_a_dry_run_says_what_it_would_do_and_records_nothing(lake):
    poor_lake(lake)
    assert "a change to try" in format_outcome(tune_rocksdb(lake, STREAM, dry_run=True))
    assert len(profiles(lake)) == 1
    tune_rocksdb(lake, STREAM)
    assert len(profiles(lake)) == 2
