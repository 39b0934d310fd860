"""The tuner over whole series of runs: it finds what there is, and nothing where nothing is."""

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.care.rocksdb.profile import FLOOR_MB, memory_ceiling_mb
from include.care.rocksdb.settings import MAX_MEMORY_MB, PINNED, SETTINGS, TUNED, WRITE_BUFFER_RATIO
from include.care.rocksdb.tune_rocksdb import PATIENCE_RUNS, decide
from include.settings import GIB, MIB, Limits
from tests.care.rocksdb.simulated import MACHINE, STREAM, Simulation, indifferent, needs_memory
from tests.examples import examples

pytestmark = pytest.mark.slow

POOR = {MAX_MEMORY_MB: "16", WRITE_BUFFER_RATIO: "0.2"}


def kinds(simulation: Simulation) -> Counter[str]:
    return Counter(outcome.kind for outcome in simulation.outcomes)


def rewritten(simulation: Simulation) -> float:
    return simulation.record.history.batches[-2].figures["bytes_rewritten"]


def until(simulation: Simulation, kind: str, runs: int = 60) -> None:
    for _ in range(runs):
        if simulation.run().kind == kind:
            return
    raise AssertionError(f"never {kind} in {runs} runs: {kinds(simulation)}")


@pytest.mark.parametrize("seed", range(10))
def test_from_poor_settings_it_ends_with_enough_memory(seed):
    simulation = Simulation.starting_from(POOR, needs_memory(60), seed=seed)
    simulation.run(2)
    before = rewritten(simulation)
    simulation.run(58)
    assert rewritten(simulation) < before / 10
    assert kinds(simulation)["kept"] in (2, 3)
    assert simulation.outcomes[-1].kind == "nothing"


def test_the_defaults_are_left_alone_where_they_do():
    simulation = Simulation(needs_memory(30))
    simulation.run(40)
    assert kinds(simulation) == {"waiting": 3, "nothing": 37}
    assert [profile.number for profile in simulation.profiles] == [1]


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.2, 0.4])
def test_on_noise_alone_it_keeps_nothing(noise):
    total: Counter[str] = Counter()
    for seed in range(25):
        simulation = Simulation(indifferent, seed=seed, noise=noise)
        simulation.run(50)
        total += kinds(simulation)
        assert simulation.settings == simulation.profiles[0].settings or simulation.record.trial
    assert total["kept"] == 0
    assert total["rolled_back"] >= 50  # it did try


def test_an_outlier_in_clocks_changes_nothing():
    simulation = Simulation(needs_memory(30), clock_noise=3.0)
    simulation.run(40)
    assert kinds(simulation)["proposed"] == 0


def test_what_was_rolled_back_is_not_proposed_again_for_a_while():
    simulation = Simulation(indifferent)
    proposed: dict[str, list[int]] = {}
    for run in range(100):
        outcome = simulation.run()
        if outcome.kind == "proposed":
            proposed.setdefault(str(outcome.profile.evidence["setting"]), []).append(run)
    assert set(proposed) == set(TUNED)
    for runs in proposed.values():
        assert len(runs) >= 2
        apart = [later - earlier for earlier, later in pairwise(runs)]
        assert min(apart) > PATIENCE_RUNS


def test_after_a_rollback_the_settings_are_those_before():
    simulation = Simulation(indifferent)
    simulation.run(3)
    before = simulation.settings
    until(simulation, "proposed")
    assert simulation.settings != before
    until(simulation, "rolled_back")
    assert simulation.settings == before
    assert simulation.record.active.number == 1


def test_a_run_that_fails_ends_the_trial():
    simulation = Simulation.starting_from(POOR, needs_memory(60))
    until(simulation, "proposed")
    simulation.fail()
    assert simulation.record.active.number == 1
    outcome = simulation.tune()
    assert (outcome.kind, "failed" in outcome.text) == ("rolled_back", True)


def test_hands_that_change_something_end_the_trial():
    simulation = Simulation.starting_from(POOR, needs_memory(60))
    until(simulation, "proposed")
    simulation.stream = replace(STREAM, rocksdb={"compression": "lz4"})
    outcome = simulation.tune()
    assert (outcome.kind, outcome.judged) == ("rolled_back", 2)
    assert outcome.profile.settings[WRITE_BUFFER_RATIO] == POOR[WRITE_BUFFER_RATIO]
    simulation.run()
    assert simulation.profiles[-1].settings["compression"] == "lz4"


def test_a_trial_is_closed_even_if_a_run_with_new_hand_settings_came_first():
    simulation = Simulation.starting_from(POOR, needs_memory(60))
    until(simulation, "proposed")
    simulation.stream = replace(STREAM, rocksdb={"compression": "lz4"})
    simulation.run()
    assert {profile.number: profile.verdict for profile in simulation.profiles} == {
        1: "default",
        2: "rolled_back",
        3: "default",
    }


def test_what_is_held_by_hand_is_never_tried_and_said():
    simulation = Simulation.starting_from(POOR, needs_memory(60))
    simulation.stream = replace(STREAM, rocksdb=POOR)
    simulation.run(40)
    assert kinds(simulation)["proposed"] == 0
    assert "held by hand: maxMemoryUsageMB, writeBufferCacheRatio" in simulation.outcomes[-1].text


def test_a_trial_that_finds_no_like_batches_is_given_up():
    simulation = Simulation.starting_from(POOR, needs_memory(60))
    until(simulation, "proposed")
    simulation.rows = 1_000_000
    until(simulation, "rolled_back")
    assert "given up" in simulation.outcomes[-1].text


def test_a_process_above_its_limit_gets_less_memory():
    def store(settings, logs):
        return {"store_memory": float(settings[MAX_MEMORY_MB]) * MIB, "bytes_written": 4.0 * MIB}

    simulation = Simulation.starting_from({MAX_MEMORY_MB: "2048"}, store)
    simulation.rss_bytes = 5 * GIB
    until(simulation, "kept")
    assert simulation.settings[MAX_MEMORY_MB] == "512"


def test_batches_of_earlier_releases_do_not_count():
    simulation = Simulation(needs_memory(30))
    simulation.run(5)
    for batch in simulation.batches:
        batch["profile"] = None
    assert decide(simulation.record).kind == "waiting"
    for batch in simulation.batches:
        batch["state_metrics"] = None
    outcome = decide(simulation.record)
    assert (outcome.kind, "no batch has metrics" in outcome.text) == ("waiting", True)


def test_a_stream_without_a_run_has_nothing_to_tune():
    outcome = decide(Simulation(needs_memory(30)).record)
    assert (outcome.kind, outcome.profile.number) == ("nothing", 1)
    assert "no run" in outcome.text


@pytest.mark.parametrize(
    "evidence",
    [{}, {"figure": "bytes_rewritten"}, {"figure": [1], "before": 1}, {"figure": "x", "before": 1}],
)
def test_a_trial_whose_evidence_is_lost_is_rolled_back(evidence):
    simulation = Simulation.starting_from(POOR, needs_memory(60))
    until(simulation, "proposed")
    simulation.profiles[-1] = replace(simulation.profiles[-1], evidence=evidence)
    assert simulation.run().kind == "rolled_back"


made_figures = st.fixed_dictionaries(
    {
        "bytes_written": st.floats(0, 1e9),
        "bytes_flushed": st.floats(0, 1e9),
        "bytes_compacted": st.floats(0, 1e9),
        "store_memory": st.floats(0, 8e9),
    }
)
hand_settings = st.sampled_from(
    [
        {},
        {MAX_MEMORY_MB: "128"},
        {WRITE_BUFFER_RATIO: "0.3"},
        {"highPriorityPoolRatio": "0.5", "compression": "lz4"},
        {"boundedMemoryUsage": "false"},
    ]
)


@examples(25)
@given(
    figures=st.lists(made_figures, min_size=1, max_size=5),
    memory=st.integers(16, 8_192),
    ratio=st.sampled_from(["0.1", "0.2", "0.5", "0.8"]),
    held=hand_settings,
    noise=st.sampled_from([0.0, 0.1, 1.0]),
    rss_limit=st.sampled_from([None, 1 * GIB, 4 * GIB]),
    seed=st.integers(0, 2**32),
)
def test_whatever_happens_one_tuned_setting_changes_at_a_time_within_its_bounds(
    figures, memory, ratio, held, noise, rss_limit, seed
):
    def store(settings, logs):
        # It answers to settings in some odd way of its own.
        return figures[(int(settings[MAX_MEMORY_MB]) + logs) % len(figures)]

    simulation = Simulation.starting_from(
        {MAX_MEMORY_MB: str(memory), WRITE_BUFFER_RATIO: ratio},
        store,
        seed=seed,
        noise=noise,
        stream=replace(STREAM, rocksdb=held, limits=Limits(rss_bytes=rss_limit)),
    )
    rng = random.Random(seed)
    for _ in range(25):
        if rng.random() < 0.03:
            simulation.fail()
        before = dict(simulation.settings)
        outcome = simulation.run()
        after = dict(simulation.settings)
        if outcome.kind == "proposed":
            (changed,) = (name for name in before if before[name] != after[name])
            assert changed in set(TUNED) - held.keys()
            assert after[changed] in SETTINGS[changed].allowed
        assert before.keys() == after.keys() == SETTINGS.keys()
        assert not after.keys() & PINNED.keys()
        assert held.items() <= after.items()
        assert decide(simulation.record) == decide(simulation.record)
    for profile in simulation.profiles:
        if profile.evidence.get("setting") == MAX_MEMORY_MB:
            assert int(profile.settings[MAX_MEMORY_MB]) <= memory_ceiling_mb(MACHINE)
            assert int(profile.settings[MAX_MEMORY_MB]) >= FLOOR_MB
        ratios = (profile.settings[name] for name in (WRITE_BUFFER_RATIO, "highPriorityPoolRatio"))
        assert sum(map(float, ratios)) < 1
    assert sum(profile.verdict == "trial" for profile in simulation.profiles) <= 1


def test_the_same_record_gives_the_same_decision_at_any_time():
    first = Simulation.starting_from(POOR, needs_memory(60), seed=3)
    second = Simulation.starting_from(POOR, needs_memory(60), seed=3)
    first.run(40)
    second.run(40)
    assert first.outcomes == second.outcomes
    later = [
        replace(profile, created_at=profile.created_at - timedelta(days=99))
        for profile in second.profiles
    ]
    assert decide(replace(second.record, profiles=later)) == decide(first.record)
