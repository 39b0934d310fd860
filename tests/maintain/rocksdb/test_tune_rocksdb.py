"""The tuner over series of runs: a change, what becomes of it, its bounds; and over a lake."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import micros_of
from include.lake.ops import append_ops, read_ops
from include.lake.paths import Lake
from include.maintain import tune_rocksdb as module
from include.maintain.tune_rocksdb import (
    COMPACTED,
    FLUSHED,
    MAX_MEMORY_MB,
    PATIENCE_RUNS,
    RETAINED,
    ROLLED_BACK,
    TRIED,
    WRITTEN,
    Figures,
    History,
    Outcome,
    decide,
    machine_memory_bytes,
    memory_ceiling_mb,
    memory_of,
    record_change,
    run_settings,
    session_conf,
    tune_rocksdb,
    wanted_mb,
)
from include.registry import stream_named
from include.settings import GIB, MIB, Stream
from include.spark.conf import STATE_STORE
from include.steps import STEPS, StreamRun
from tests.refused import refused

STREAM = stream_named("user_counts")
MACHINE = 16 * GIB
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)

# Of the memory in MiB: what a batch writes, and what it flushes and compacts, in MiB.
Store = Callable[[int], tuple[float, float]]


def needs(memory_mb: int) -> Store:
    """Rewrites as much as is missing."""
    return lambda has: (4.0, max(0.0, 4.0 * (memory_mb - has) / has))


@dataclass
class Series:
    """The runs of a stream, each followed by the tuner; as lists, without a lake."""

    store: Store
    memory_mb: int | None = None  # before the first run; None: ours
    stream: Stream = STREAM
    rss_bytes: float = 1.5 * GIB
    batches: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    change: Outcome | None = None

    def __post_init__(self) -> None:
        if self.memory_mb is not None:
            known = (RETAINED, self.memory_mb, micros_of(NOON))
            self.change = Outcome(self.memory_mb, "a test", *known)

    @property
    def history(self) -> History:
        return History(
            stream=self.stream,
            change=self.change,
            batches=self.batches,
            runs=self.runs,
            machine_bytes=MACHINE,
        )

    @property
    def memory(self) -> int:
        return memory_of(self.history.settings)

    def run(self) -> str | None:
        return self.drain().tune().finding

    def drain(self) -> "Series":
        """One run: a batch with data, and one without."""
        run_id = self._end("succeeded")
        for rows in (1_000, 0):
            self.batches.append(self._batch(run_id, rows))
        return self

    def fail(self) -> "Series":
        self._end("failed")
        return self

    def tune(self) -> Outcome:
        """Do what the task does, on lists."""
        outcome = decide(self.history)
        if outcome.finding:
            at = self._now(minutes=30)
            self.change = outcome._replace(made_us=micros_of(at))
        return outcome

    def _now(self, minutes: int = 0) -> datetime:
        return NOON + timedelta(hours=len(self.runs), minutes=minutes)

    def _end(self, outcome: str) -> str:
        run = {"run_id": f"run-{len(self.runs)}", "job": "run_stream", "outcome": outcome}
        rss = {"jvm_rss_bytes": int(self.rss_bytes), "python_rss_bytes": None}
        self.runs.append(run | rss | {"started_at": self._now() + timedelta(hours=1)})
        return str(run["run_id"])

    def _batch(self, run_id: str, rows: int) -> dict[str, Any]:
        written, rewritten = self.store(self.memory)
        metrics = {WRITTEN: round(written * MIB), FLUSHED: round(rewritten * MIB), COMPACTED: 0}
        return {
            "batch_id": len(self.batches) + 1,
            "run_id": run_id,
            "committed_at": self._now(),
            "memory_mb": self.memory,
            "rows_in": rows,
            "state_metrics": json.dumps([metrics]),
        }


def test_too_little_memory_becomes_enough_and_stays():
    series = Series(needs(300), memory_mb=64)
    assert [series.run() for _ in range(6)] == [TRIED, RETAINED, None, None, None, None]
    assert series.memory == 300


def test_a_worse_run_takes_the_change_back_and_no_other_is_tried_for_a_while():
    series = Series(needs(300), memory_mb=64)
    assert series.run() == TRIED
    series.store = lambda has: (4.0, 40.0)
    assert (series.run(), series.memory) == (ROLLED_BACK, 64)
    assert {series.run() for _ in range(PATIENCE_RUNS - 1)} == {None}
    assert series.run() == TRIED


def test_what_is_set_by_hand_is_not_tuned_and_ends_a_trial():
    series = Series(needs(300), memory_mb=64)
    series.run()
    series.stream = replace(STREAM, rocksdb={MAX_MEMORY_MB: "128"})
    assert [series.run() for _ in range(2)] == [ROLLED_BACK, None]
    assert series.memory == 128
    free = Series(needs(300), 64, replace(STREAM, rocksdb={"boundedMemoryUsage": "false"}))
    assert {free.run() for _ in range(3)} == {None}


@pytest.mark.parametrize("column", [{"state_metrics": None}, {"memory_mb": None}])
def test_without_a_measured_run_with_data_it_waits(column):
    assert decide(Series(needs(300)).history).finding is None
    series = Series(needs(300), memory_mb=64).drain()
    measured = series.batches
    series.batches = [row | column for row in measured]
    assert series.tune().finding is None
    series.batches = measured
    assert [series.tune().finding for _ in range(2)] == [TRIED, None]


sizes = st.floats(0, 1e18)
machines = st.integers(1, 4_096 * GIB)


@given(
    memory=st.integers(16, 100_000),
    machine=machines,
    limit=st.none() | st.integers(0, 10**13),
    figures=st.tuples(sizes, sizes, sizes),
)
def test_the_memory_has_its_bounds_whatever_was_measured(memory, machine, limit, figures):
    measured, ceiling = Figures(*figures), memory_ceiling_mb(machine)
    wanted = wanted_mb(memory, ceiling, limit, measured)
    assert memory <= wanted <= max(memory, ceiling)
    if wanted > memory:
        assert measured.rewritten >= MIB
        assert limit is None or measured.rss + (wanted - memory) * MIB <= limit


@given(
    answers=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=5),
    memory=st.integers(16, 2_048),
    held=st.sampled_from([{}, {MAX_MEMORY_MB: "128"}, {"compression": "lz4"}]),
    fails=st.sets(st.integers(0, 14)),
)
def test_whatever_happens_one_setting_changes_within_its_bounds(answers, memory, held, fails):
    store = lambda has: answers[has % len(answers)]  # noqa: E731
    series = Series(store, memory, replace(STREAM, rocksdb=held))
    for number in range(15):
        before = series.history.settings
        change = series.fail().tune().finding if number in fails else series.run()
        after = series.history.settings
        changed = {name for name in before if before[name] != after[name]}
        assert changed <= {MAX_MEMORY_MB} - held.keys()
        assert after.keys() == held.keys() | {MAX_MEMORY_MB}
        assert held.items() <= after.items()
        assert (change == TRIED) <= (len(changed) == 1)


@pytest.mark.parametrize(
    ("limit", "expected"), [(f"{GIB}\n", GIB), ("max\n", None), (f"{10**18}\n", None)]
)
def test_a_container_is_as_large_as_its_limit(tmp_path, monkeypatch, limit, expected):
    monkeypatch.setattr(module, "CGROUP_LIMIT", tmp_path / "absent")
    physical = machine_memory_bytes()
    assert physical > GIB
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(module, "CGROUP_LIMIT", tmp_path / "memory.max")
    assert machine_memory_bytes() == (expected or physical)


# On a lake


@pytest.fixture
def lake(lake: Lake, monkeypatch) -> Lake:
    monkeypatch.setattr(module, "machine_memory_bytes", lambda: MACHINE)
    Path(lake.checkpoint(STREAM.name, 1)).mkdir(parents=True)
    return lake


def tune(lake: Lake, is_dry: bool = False) -> str:
    (step,) = (step for step in STEPS if step.name == "tune_rocksdb")
    assert step.look is not None
    return step.look(StreamRun(lake, STREAM, is_dry=is_dry)).text


def changes(lake: Lake) -> list[str]:
    found = read_ops(lake, "findings", {"subject": STREAM.name}).sort_by("found_at")
    return list(found["finding"].to_pylist())


def memory(lake: Lake, stream: Stream = STREAM) -> str:
    return run_settings(lake, stream)[MAX_MEMORY_MB]


def test_without_a_record_it_is_sized_from_the_machine_and_what_is_set_by_hand_stays(lake):
    held = replace(STREAM, rocksdb={"minDeltasForSnapshot": "5", "blockSizeKB": "8"})
    assert session_conf(run_settings(lake, held)) == {
        f"{STATE_STORE}.rocksdb.maxMemoryUsageMB": "256",
        f"{STATE_STORE}.minDeltasForSnapshot": "5",
        f"{STATE_STORE}.rocksdb.blockSizeKB": "8",
    }
    assert tune_rocksdb(lake, STREAM).finding is None


def test_settings_by_hand_and_a_smaller_machine_come_before_what_was_found(lake, monkeypatch):
    record_change(lake, STREAM, Outcome(2_048, "a test", RETAINED, 64))
    assert memory(lake) == "2048"
    assert memory(lake, stream_named("device_signals")) == "256"
    monkeypatch.setattr(module, "machine_memory_bytes", lambda: 4 * GIB)
    assert memory(lake) == "512"
    assert memory(lake, replace(STREAM, rocksdb={MAX_MEMORY_MB: "2048"})) == "2048"
    with refused("wrong_setting", subject="blockSizeKb"):
        run_settings(lake, replace(STREAM, rocksdb={"blockSizeKb": "8"}))


def test_a_change_and_what_becomes_of_it_are_on_record_and_a_dry_run_writes_nothing(lake):
    series = Series(needs(600), memory_mb=256).drain()
    known = {"stream": STREAM.name, "generation": 1}
    append_ops(lake, "batches", [known | batch for batch in series.batches])
    times = {"started_at": NOON, "ended_at": NOON, "subject": STREAM.name}
    append_ops(lake, "runs", [run | times for run in series.runs])
    assert "600 MiB" in tune(lake, is_dry=True)
    assert (changes(lake), memory(lake)) == ([], "256")
    assert "600 MiB" in tune(lake)
    assert (changes(lake), memory(lake)) == ([TRIED], "600")
    tune(lake)
    assert changes(lake) == [TRIED]
    now = datetime.now(UTC)
    failed = {"run_id": "x", "job": "run_stream", "subject": STREAM.name, "outcome": "failed"}
    append_ops(lake, "runs", [failed | {"started_at": now, "ended_at": now}])
    assert memory(lake) == "256"
    assert "256 MiB" in tune(lake)
    assert (changes(lake), memory(lake)) == ([TRIED, ROLLED_BACK], "256")
