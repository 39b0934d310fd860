"""A stream whose runs are made up: what `ops` would hold, without Spark or a lake.

A `Store` says how a state store answers to its settings; the noise comes on top. Each run is
followed by the tuner, and every tenth by a compaction, which starts the change logs anew.
"""

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from include.care.rocksdb.history import CLOCKS, COUNTERS, history_of
from include.care.rocksdb.profile import Profile, complete_settings
from include.care.rocksdb.settings import MAX_MEMORY_MB, WRITE_BUFFER_RATIO
from include.care.rocksdb.tune_rocksdb import Outcome, Record, decide
from include.registry import stream_named
from include.settings import GIB, MIB, Stream

STREAM = stream_named("user_counts")
STARTED = datetime(2026, 1, 1, tzinfo=UTC)
MACHINE = 16 * GIB
CYCLE = 10  # runs between two compactions
PARTITIONS = 4

Figures = dict[str, float]
Store = Callable[[Mapping[str, str], int], Figures]


def needs_memory(needed_mb: float) -> Store:
    """Rewrites what does not fit into the part of the memory that is for writes.

    By so many bytes for each time that the memory would have to double, as measured
    (tests/benchmarks/sensitivity.py: a million keys, 16 to 256 MB).
    """

    def store(settings: Mapping[str, str], logs: int) -> Figures:
        has = float(settings[MAX_MEMORY_MB]) * float(settings[WRITE_BUFFER_RATIO])
        needs = needed_mb * (1 + logs / 40)
        doublings = max(0.0, math.log2(needs / has))
        return {
            "bytes_written": 4.0 * MIB,
            "bytes_flushed": 3.0 * MIB * doublings,
            "bytes_compacted": 6.0 * MIB * doublings,
            "store_memory": min(has, needs) * MIB,
        }

    return store


def indifferent(settings: Mapping[str, str], logs: int) -> Figures:
    """Rewrites much, whatever the settings: all the tuner can see is noise."""
    return {
        "bytes_written": 4.0 * MIB,
        "bytes_flushed": 6.0 * MIB,
        "bytes_compacted": 6.0 * MIB,
        "store_memory": 300.0 * MIB,
    }


@dataclass
class Simulation:
    """A stream under the tuner: `run` it, and look at `outcomes`, `profiles`, `batches`."""

    store: Store
    seed: int = 0
    noise: float = 0.05  # of counters, as a standard deviation of their logarithm
    clock_noise: float = 0.5
    rss_bytes: float = 1.5 * GIB
    rows: int = 1_000
    stream: Stream = STREAM
    machine: int = MACHINE
    batches: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    profiles: list[Profile] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    @classmethod
    def starting_from(cls, tuned: Mapping[str, str], store: Store, **more: Any) -> "Simulation":
        """A stream whose first profile is the given one, not ours."""
        simulation = cls(store, **more)
        settings = complete_settings(tuned, simulation.stream, simulation.machine)
        simulation.record_profile(1, settings, "default", {})
        return simulation

    @property
    def now(self) -> datetime:
        return STARTED + timedelta(hours=len(self.runs))

    @property
    def record(self) -> Record:
        ordinary = [run for run in self.runs if run["job"] == "run_stream"]
        return Record(
            stream=self.stream,
            history=history_of(1, self.batches, ordinary),
            profiles=tuple(self.profiles),
            machine_bytes=self.machine,
        )

    @property
    def settings(self) -> Mapping[str, str]:
        return self.record.active.settings

    def run(self, times: int = 1) -> Outcome:
        """So many runs, each followed by the tuner."""
        for _ in range(times):
            self.drain()
            self.tune()
        return self.outcomes[-1]

    def drain(self) -> None:
        """One run: a batch with data, and one without."""
        active = self.record.active
        if not active.is_recorded:
            self.record_profile(active.number, active.settings, "default", {})
        logs = PARTITIONS * 2 * (len(self.runs) % CYCLE)
        run_id = self._end_run("succeeded")
        for rows in (max(1, round(self.rows * self._factor(0.1))), 0):
            self.batches.append(self._batch(run_id, active.number, active.settings, rows, logs))

    def fail(self) -> None:
        """One run that fails before its first batch."""
        self._end_run("failed")

    def tune(self) -> Outcome:
        """What tune_rocksdb does, on lists."""
        outcome = decide(self.record)
        self.outcomes.append(outcome)
        if outcome.kind == "proposed":
            new = outcome.profile
            self.record_profile(new.number, new.settings, "trial", dict(new.evidence))
        elif outcome.kind in ("kept", "rolled_back"):
            self.profiles = [
                replace(known, verdict=outcome.kind) if known.number == outcome.judged else known
                for known in self.profiles
            ]
        return outcome

    def record_profile(
        self, number: int, settings: Mapping[str, str], verdict: str, evidence: dict[str, Any]
    ) -> None:
        self.profiles.append(
            Profile(
                number=number,
                settings=dict(settings),
                verdict=verdict,
                reason="",
                created_at=self.now,
                evidence=json.loads(json.dumps(evidence)),
            )
        )

    def _end_run(self, outcome: str) -> str:
        run_id = f"run-{len(self.runs)}"
        self.runs.append(
            {
                "run_id": run_id,
                "job": "run_stream",
                "outcome": outcome,
                "started_at": self.now,
                "jvm_rss_bytes": int(self.rss_bytes * self._factor(0.03)),
                "python_rss_bytes": 0,
            }
        )
        return run_id

    def _batch(
        self, run_id: str, profile: int, settings: Mapping[str, str], rows: int, logs: int
    ) -> dict[str, Any]:
        known = self.store(settings, logs)
        figures = {name: known.get(name, 100.0) * self._factor(self.noise) for name in COUNTERS}
        figures |= {name: 50 * self._factor(self.clock_noise) for name in CLOCKS}
        figures["logs_replayed"] = logs if rows else 0
        metrics = {metric: round(figures[n]) for n, metric in (COUNTERS | CLOCKS).items()}
        return {
            "batch_id": len(self.batches),
            "run_id": run_id,
            "profile": profile,
            "rows_in": rows,
            "state_bytes": round(known["store_memory"] * self._factor(self.noise)),
            "durations_ms": json.dumps({"triggerExecution": 3_000}),
            "state_metrics": json.dumps([metrics]),
        }

    def _factor(self, noise: float) -> float:
        return self.rng.lognormvariate(0, noise)
