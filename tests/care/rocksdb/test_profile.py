"""Profiles: which settings the next run has, under which number, and with how much memory."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.care.rocksdb import tune_rocksdb as profile_module
from include.care.rocksdb.settings import SETTINGS
from include.care.rocksdb.tune_rocksdb import (
    FLOOR_MB,
    MACHINE_SHARE,
    PER_PARTITION_MB,
    active_profile,
    complete_settings,
    machine_memory_bytes,
    memory_ceiling_mb,
    memory_limit_mb,
    profile_for_run,
)
from include.lake.ops import append_ops, read_ops
from include.registry import stream_named
from include.settings import GIB, MIB
from tests.refused import refused

STREAM = stream_named("user_counts")
MACHINE = 16 * GIB
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
machines = st.integers(1, 4_096 * GIB)


def record(lake, number: int, verdict="default", stream=STREAM, created_at=NOON, **settings: str):
    """A profile on record that differs from the first in `settings`."""
    complete = {**complete_settings(settings, stream, MACHINE), **settings}
    row = {"stream": stream.name, "profile": number, "verdict": verdict}
    row |= {"created_at": created_at, "settings": json.dumps(complete)}
    append_ops(lake, "rocksdb_profiles", [row])


def fail_a_run(lake, started_at: datetime):
    run = {"run_id": "1", "job": "run_stream", "subject": STREAM.name, "outcome": "failed"}
    append_ops(lake, "runs", [run | {"started_at": started_at, "ended_at": started_at}])


def active(lake, stream=STREAM, machine=MACHINE):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile_module, "machine_memory_bytes", lambda: machine)
        return active_profile(lake, stream)


def test_without_a_record_it_is_our_defaults_sized_from_the_machine(lake):
    profile = active(lake)
    assert (profile.number, profile.verdict, profile.created_at) == (1, "default", None)
    ours = {name: setting.value for name, setting in SETTINGS.items()}
    assert profile.settings == ours | {"maxMemoryUsageMB": str(memory_limit_mb(MACHINE, 4))}
    assert profile.settings["boundedMemoryUsage"] == "true"


def test_a_session_takes_the_settings_by_their_full_names(lake):
    conf = active(lake).conf()
    state_store = "spark.sql.streaming.stateStore"
    assert conf[f"{state_store}.rocksdb.maxMemoryUsageMB"] == "256"
    assert conf[f"{state_store}.rocksdb.changelogCheckpointing.enabled"] == "true"
    assert conf[f"{state_store}.minDeltasForSnapshot"] == "1000"
    assert len(conf) == len(SETTINGS)


def test_to_look_writes_nothing_and_a_run_puts_its_profile_on_record_once(lake):
    active(lake)
    assert not lake.is_delta_table(lake.ops("rocksdb_profiles"))
    first, again = profile_for_run(lake, STREAM), profile_for_run(lake, STREAM)
    assert (first.number, again.number) == (1, 1)
    assert again.settings == first.settings
    (row,) = read_ops(lake, "rocksdb_profiles").to_pylist()
    assert json.loads(row["settings"]) == first.settings
    assert (row["verdict"], row["judged_at"]) == ("default", None)


def test_streams_have_profiles_of_their_own(lake):
    other = stream_named("device_signals")
    record(lake, 1, maxMemoryUsageMB="512")
    assert active(lake).settings["maxMemoryUsageMB"] == "512"
    assert active(lake, other).number == 1
    assert active(lake, other).settings["maxMemoryUsageMB"] == "256"


def test_the_newest_that_was_not_rolled_back_is_active(lake):
    record(lake, 1)
    record(lake, 2, "kept", maxMemoryUsageMB="1024")
    record(lake, 3, "rolled_back", maxMemoryUsageMB="2048")
    assert (active(lake).number, active(lake).settings["maxMemoryUsageMB"]) == (2, "1024")
    record(lake, 4, "trial", maxMemoryUsageMB="512")
    assert (active(lake).number, active(lake).verdict) == (4, "trial")


def test_a_run_that_fails_ends_the_trial_for_the_next_run(lake):
    record(lake, 1)
    record(lake, 2, "trial", maxMemoryUsageMB="1024")
    fail_a_run(lake, NOON - timedelta(microseconds=1))
    assert active(lake).number == 2
    fail_a_run(lake, NOON)
    assert active(lake).number == 1


def test_what_is_held_by_hand_is_a_profile_of_its_own(lake):
    record(lake, 1)
    record(lake, 2, "kept", maxMemoryUsageMB="1024")
    by_hand = replace(STREAM, rocksdb={"compression": "lz4"})
    profile = active(lake, by_hand)
    assert (profile.number, profile.created_at, profile.verdict) == (3, None, "default")
    assert profile.settings["compression"] == "lz4"
    assert profile.settings["maxMemoryUsageMB"] == "1024"  # what the tuner found stays


def test_holding_what_is_so_already_is_no_new_profile(lake):
    record(lake, 1)
    profile = active(lake, replace(STREAM, rocksdb={"compression": "zstd"}))
    assert (profile.number, profile.created_at is None) == (1, False)


def test_a_smaller_machine_has_a_smaller_limit_and_a_new_number(lake):
    record(lake, 1, maxMemoryUsageMB="2048")
    assert active(lake).number == 1
    smaller = active(lake, machine=4 * GIB)
    assert (smaller.number, smaller.settings["maxMemoryUsageMB"]) == (2, "512")
    by_hand = replace(STREAM, rocksdb={"maxMemoryUsageMB": "2048"})
    assert active(lake, by_hand, 4 * GIB).number == 1


def test_an_impossible_hand_setting_stops_a_run_before_it_begins(lake):
    with refused("wrong_setting", subject="blockSizeKb"):
        profile_for_run(lake, replace(STREAM, rocksdb={"blockSizeKb": "8"}))
    assert not lake.is_delta_table(lake.ops("rocksdb_profiles"))


@given(machines, st.integers(1, 10_000))
def test_the_limit_is_between_the_floor_and_the_machines_ceiling(machine, partitions):
    limit = memory_limit_mb(machine, partitions)
    assert FLOOR_MB <= limit <= memory_ceiling_mb(machine)
    assert limit in (FLOOR_MB, PER_PARTITION_MB * partitions, memory_ceiling_mb(machine))


@given(machines, st.integers(1, 1_000))
def test_more_partitions_or_a_larger_machine_never_mean_less(machine, partitions):
    limit = memory_limit_mb(machine, partitions)
    assert memory_limit_mb(machine, partitions + 1) >= limit
    assert memory_limit_mb(machine + GIB, partitions) >= limit


def test_each_of_the_three_bounds_can_be_the_one_that_counts():
    assert memory_limit_mb(16 * GIB, 4) == 4 * PER_PARTITION_MB
    assert memory_limit_mb(2 * GIB, 64) == 2 * 1024 // MACHINE_SHARE
    assert memory_limit_mb(256 * MIB, 64) == FLOOR_MB


@pytest.mark.parametrize(
    ("limit", "expected"), [(f"{GIB}\n", GIB), ("max\n", None), (f"{10**18}\n", None)]
)
def test_a_container_is_as_large_as_its_limit(tmp_path, monkeypatch, limit, expected):
    monkeypatch.setattr(profile_module, "CGROUP_LIMIT", tmp_path / "absent")
    physical = machine_memory_bytes()
    assert physical > GIB
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(profile_module, "CGROUP_LIMIT", tmp_path / "memory.max")
    assert machine_memory_bytes() == (expected or physical)
