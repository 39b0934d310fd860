"""A real series of runs, as `python -m tests.benchmarks.tuning --out` recorded it.

From 16 MiB, a fifth of it for writes, on 400,000 keys: which decisions follow from it.
"""

import json
from pathlib import Path

import pytest

from include.care.rocksdb.history import Batch, history_of, noise
from include.care.rocksdb.settings import MAX_MEMORY_MB, WRITE_BUFFER_RATIO
from include.care.rocksdb.trial import judge
from tests.care.rocksdb.simulated import Simulation, indifferent

SERIES = Path(__file__).parent / "recorded_series.jsonl"
POOR = {MAX_MEMORY_MB: "16", WRITE_BUFFER_RATIO: "0.2"}
FIGURE = "bytes_rewritten"


def recorded(kind: str) -> list[dict]:
    lines = map(json.loads, SERIES.read_text().splitlines())
    return [line[kind] for line in lines if kind in line]


def batches_under(profile: int) -> list[Batch]:
    ordinary = [run for run in recorded("run") if run["job"] == "run_stream"]
    return list(history_of(1, recorded("batch"), ordinary).under(profile))


def test_the_same_decisions_follow_from_it_run_by_run():
    tuner = Simulation.starting_from(POOR, indifferent)
    decided = []
    for run in recorded("run"):
        tuner.runs.append(run | {"started_at": tuner.now})
        batches = [batch for batch in recorded("batch") if batch["run_id"] == run["run_id"]]
        if run["job"] == "run_stream":
            # The live tuner's settings were those that the replayed one has arrived at.
            assert {batch["profile"] for batch in batches} == {tuner.record.active.number}
        tuner.batches += batches
        if run["job"] == "run_stream":
            outcome = tuner.tune()
            decided += [outcome.kind] if outcome.kind not in ("waiting", "nothing") else []
    assert decided == ["proposed", "kept", "proposed", "kept"]
    assert tuner.settings[WRITE_BUFFER_RATIO] == "0.8"
    assert tuner.settings[MAX_MEMORY_MB] == "64"
    assert tuner.outcomes[-1].kind == "nothing"


@pytest.mark.parametrize("profile", [1, 2])
def test_real_batches_of_one_profile_do_not_look_like_a_gain(profile):
    batches = batches_under(profile)
    assert noise(batches, FIGURE) is not None
    for trial in (batches, batches[::-1]):
        assert judge(trial, batches, FIGURE, runs=len(trial)).verdict == "rolled_back"


def test_real_batches_of_a_poor_profile_are_worse_than_of_a_tuned_one():
    poor, tuned = batches_under(1), batches_under(3)
    assert judge(tuned, poor, FIGURE, runs=len(tuned)).verdict == "kept"
    assert judge(poor, tuned, FIGURE, runs=len(poor)).verdict == "rolled_back"
