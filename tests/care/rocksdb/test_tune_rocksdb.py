"""The tuner over series of runs: a change, what becomes of it, its bounds; and over a lake."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.care.rocksdb import tune_rocksdb as module
from include.care.rocksdb.settings import MAX_MEMORY_MB, PINNED, SETTINGS
from include.care.rocksdb.tune_rocksdb import (
    COMPACTED,
    FLOOR_MB,
    FLUSHED,
    PATIENCE_RUNS,
    WRITTEN,
    Figures,
    History,
    Outcome,
    Profile,
    active_profile,
    complete_settings,
    decide,
    format_outcome,
    memory_ceiling_mb,
    record_profile,
    trial_findings,
    tune_rocksdb,
    wanted_mb,
)
from include.lake.ops import append_ops, read_ops
from include.registry import stream_named
from include.settings import GIB, MIB, Limits, Stream

STREAM = stream_named("user_counts")
MACHINE = 16 * GIB
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)

# Of the memory in MiB: what a batch writes, and what it flushes and compacts, in MiB.
Store = Callable[[int], tuple[float, float]]


def needs(memory_mb: int) -> Store:
    """Rewrites as much as is missing."""
    return lambda has: (4.0, max(0.0, 4.0 * (memory_mb - has) / has))


def indifferent(has: int) -> tuple[float, float]:
    """Rewrites much, whatever it has."""
    return 4.0, 12.0


@dataclass
class Series:
    """The runs of a stream, each followed by the tuner; as lists, without a lake."""

    store: Store
    memory_mb: int | None = None  # of the first profile; None: ours
    stream: Stream = STREAM
    rss_bytes: float = 1.5 * GIB
    batches: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    profiles: list[Profile] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.memory_mb is not None:
            tuned = {MAX_MEMORY_MB: str(self.memory_mb)}
            settings = complete_settings(tuned, self.stream, MACHINE)
            self._record(Profile(number=1, settings=settings, verdict="default", reason=""))

    @property
    def record(self) -> History:
        return History(
            stream=self.stream,
            batches=self.batches,
            runs=self.runs,
            profiles=tuple(self.profiles),
            machine_bytes=MACHINE,
        )

    @property
    def memory(self) -> int:
        return int(self.record.active.settings[MAX_MEMORY_MB])

    def run(self, times: int = 1) -> Outcome:
        for _ in range(times):
            outcome = self.drain().tune()
        return outcome

    def drain(self) -> "Series":
        """One run: a batch with data, and one without."""
        active = self.record.active
        if active.created_at is None:
            self._record(active)
        run_id = self._end("succeeded")
        for rows in (1_000, 0):
            self.batches.append(self._batch(run_id, active, rows))
        return self

    def fail(self) -> "Series":
        self._end("failed")
        return self

    def tune(self) -> Outcome:
        """What the task does, on lists."""
        outcome = decide(self.record)
        if outcome.kind == "proposed":
            self._record(outcome.profile)
        elif outcome.judged is not None and outcome.kind != "waiting":
            verdict = {"verdict": outcome.kind, "judged_at": self._now()}
            self.profiles = [
                replace(known, **verdict) if known.number == outcome.judged else known
                for known in self.profiles
            ]
        return outcome

    def _now(self) -> datetime:
        return NOON + timedelta(hours=len(self.runs))

    def _record(self, profile: Profile) -> None:
        evidence = json.loads(json.dumps(dict(profile.evidence)))
        made = replace(profile, created_at=self._now(), evidence=evidence)
        self.profiles.append(made)

    def _end(self, outcome: str) -> str:
        run = {"run_id": f"run-{len(self.runs)}", "job": "run_stream", "outcome": outcome}
        rss = {"jvm_rss_bytes": int(self.rss_bytes), "python_rss_bytes": None}
        self.runs.append(run | rss | {"started_at": self._now()})
        return str(run["run_id"])

    def _batch(self, run_id: str, profile: Profile, rows: int) -> dict[str, Any]:
        has = int(profile.settings[MAX_MEMORY_MB])
        written, rewritten = self.store(has)
        metrics = {
            WRITTEN: round(written * MIB),
            FLUSHED: round(rewritten * MIB),
            COMPACTED: 0,
        }
        return {
            "batch_id": len(self.batches) + 1,
            "run_id": run_id,
            "profile": profile.number,
            "rows_in": rows,
            "state_bytes": has * MIB,
            "state_metrics": json.dumps([metrics]),
        }


def test_too_little_memory_becomes_enough_and_stays():
    series = Series(needs(300), memory_mb=64)
    kinds = [series.run().kind for _ in range(6)]
    assert kinds == ["proposed", "kept", "nothing", "nothing", "nothing", "nothing"]
    assert series.memory == 300
    assert [profile.verdict for profile in series.profiles] == ["default", "kept"]


def test_the_defaults_are_left_alone_where_they_do():
    series = Series(needs(30))
    assert {series.run().kind for _ in range(10)} == {"nothing"}
    assert [profile.number for profile in series.profiles] == [1]


def test_a_worse_run_takes_the_change_back_and_no_other_is_tried_for_a_while():
    series = Series(needs(300), memory_mb=64)
    assert series.run().kind == "proposed"
    series.store = lambda has: (4.0, 40.0)
    outcome = series.run()
    assert (outcome.kind, outcome.judged, series.memory) == ("rolled_back", 2, 64)
    assert [found.finding for found in trial_findings(outcome)] == ["trial_rolled_back"]
    assert {series.run().kind for _ in range(PATIENCE_RUNS - 1)} == {"nothing"}
    assert series.run().kind == "proposed"


def test_memory_that_gains_nothing_is_given_back():
    series = Series(indifferent, memory_mb=64)
    assert [series.run().kind for _ in range(2)] == ["proposed", "rolled_back"]
    assert series.memory == 64


def test_a_run_above_the_streams_limit_gets_less():
    limited = replace(STREAM, limits=Limits(rss_bytes=4 * GIB))
    series = Series(needs(30), 2_048, limited, rss_bytes=5 * GIB)
    assert series.run().kind == "proposed"
    assert series.memory == 1_024
    series.rss_bytes = 4 * GIB
    assert [series.run().kind for _ in range(2)] == ["kept", "nothing"]


def test_hands_that_change_something_end_the_trial_and_what_they_hold_is_not_tuned():
    series = Series(needs(300), memory_mb=64)
    series.run()
    series.stream = replace(STREAM, rocksdb={"compression": "lz4"})
    assert [series.run().kind for _ in range(2)] == ["rolled_back", "nothing"]
    assert (series.record.active.settings["compression"], series.memory) == ("lz4", 64)
    held = Series(needs(300), 64, replace(STREAM, rocksdb={MAX_MEMORY_MB: "64"}))
    free = Series(needs(300), 64, replace(STREAM, rocksdb={"boundedMemoryUsage": "false"}))
    assert {series.run(3).kind for series in (held, free)} == {"nothing"}


@pytest.mark.parametrize("metrics", [None, "[{}]"])
def test_without_a_measured_run_with_data_it_waits(metrics: str | None):
    assert decide(Series(needs(300)).record).kind == "nothing"
    series = Series(needs(300), memory_mb=64)
    series.drain()
    measured = series.batches
    series.batches = [row | {"state_metrics": metrics} for row in measured]
    assert series.tune().kind == "waiting"
    series.batches = [row | {"profile": None} for row in measured]
    assert series.tune().kind == "waiting"
    series.batches = measured
    assert series.tune().kind == "proposed"
    assert series.tune().kind == "waiting"


sizes = st.floats(0, 1e18)


@given(
    memory=st.integers(16, 100_000),
    machine=st.integers(1, 4_096 * GIB),
    limit=st.none() | st.integers(0, 10**13),
    figures=st.tuples(sizes, sizes, sizes, sizes),
)
def test_the_memory_has_its_bounds_whatever_was_measured(memory, machine, limit, figures):
    written, rewritten, store_memory, rss = figures
    measured = Figures(written, rewritten, store_memory, rss)
    ceiling = memory_ceiling_mb(machine)
    wanted = wanted_mb(memory, ceiling, limit, measured)
    assert min(memory, FLOOR_MB) <= wanted <= max(memory, ceiling)
    if wanted > memory:
        assert rewritten >= MIB
        assert limit is None or rss + (wanted - memory) * MIB <= limit
    if wanted < memory:
        assert limit is not None
        assert rss > limit


@given(
    answers=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=5),
    memory=st.integers(16, 8_192),
    held=st.sampled_from([{}, {MAX_MEMORY_MB: "128"}, {"compression": "lz4"}]),
    fails=st.sets(st.integers(0, 14)),
)
def test_whatever_happens_one_setting_changes_within_its_bounds(answers, memory, held, fails):
    store = lambda has: answers[has % len(answers)]  # noqa: E731
    series = Series(store, memory, replace(STREAM, rocksdb=held))
    for number in range(15):
        before = series.record.active.settings
        outcome = series.fail().tune() if number in fails else series.run()
        after = series.record.active.settings
        changed = {name for name in before if before[name] != after[name]}
        assert changed <= {MAX_MEMORY_MB} - held.keys()
        assert after.keys() == SETTINGS.keys()
        assert not after.keys() & PINNED.keys()
        assert held.items() <= after.items()
        assert after[MAX_MEMORY_MB] in SETTINGS[MAX_MEMORY_MB].allowed
        assert (outcome.kind == "proposed") <= (len(changed) == 1)
        assert decide(series.record) == decide(series.record)
        assert sum(profile.verdict == "trial" for profile in series.profiles) <= 1


# On a lake


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(module, "machine_memory_bytes", lambda: MACHINE)


def poor_lake(lake, runs: int = 3):
    """A lake after runs under a profile with too little memory."""
    series = Series(needs(300), memory_mb=64)
    for _ in range(runs):
        series.drain()
    profile = active_profile(lake, STREAM)
    poor = replace(profile, settings={**profile.settings, MAX_MEMORY_MB: "64"})
    record_profile(lake, STREAM, poor)
    known = {"stream": STREAM.name, "generation": 1}
    append_ops(lake, "batches", [known | batch for batch in series.batches])
    times = {"started_at": NOON, "ended_at": NOON, "subject": STREAM.name}
    append_ops(lake, "runs", [run | times for run in series.runs])
    return lake


def fail_a_run(lake) -> datetime:
    failed = {"run_id": "x", "job": "run_stream", "subject": STREAM.name, "outcome": "failed"}
    now = datetime.now(UTC)
    append_ops(lake, "runs", [failed | {"started_at": now, "ended_at": now}])
    return now


def profiles(lake):
    rows = read_ops(lake, "rocksdb_profiles", {"stream": STREAM.name}).to_pylist()
    return sorted(rows, key=lambda row: row["profile"])


def test_a_stream_that_never_ran_has_an_outcome_too(lake):
    assert tune_rocksdb(lake, STREAM).kind == "nothing"
    assert not lake.is_delta_table(lake.ops("rocksdb_profiles"))


def test_a_dry_run_decides_the_same_and_writes_nothing(lake):
    poor_lake(lake)
    before = profiles(lake)
    dry = tune_rocksdb(lake, STREAM, dry_run=True)
    assert (dry.kind, profiles(lake)) == ("proposed", before)
    assert active_profile(lake, STREAM).number == 1
    assert tune_rocksdb(lake, STREAM) == dry


def test_a_change_and_its_verdict_are_on_record(lake):
    tune_rocksdb(poor_lake(lake), STREAM)
    default, trial = profiles(lake)
    assert (default["verdict"], trial["verdict"], trial["profile"]) == ("default", "trial", 2)
    assert json.loads(trial["evidence"])["figure"] == "rewriting"
    assert json.loads(trial["settings"])[MAX_MEMORY_MB] == "300"
    assert active_profile(lake, STREAM).number == 2
    assert tune_rocksdb(lake, STREAM).kind == "waiting"

    now = fail_a_run(lake)
    assert tune_rocksdb(lake, STREAM).kind == "rolled_back"
    assert profiles(lake)[1]["verdict"] == "rolled_back"
    assert profiles(lake)[1]["judged_at"] >= now


def test_a_change_and_its_way_back_are_told(lake):
    proposed = format_outcome(tune_rocksdb(poor_lake(lake), STREAM))
    assert f"{MAX_MEMORY_MB} 64 to 300" in proposed
    fail_a_run(lake)
    outcome = tune_rocksdb(lake, STREAM)
    assert f"the next run has profile 1 (default): {MAX_MEMORY_MB} 64" in format_outcome(outcome)
    assert [found.finding for found in trial_findings(outcome)] == ["trial_rolled_back"]
