"""Trials: when each rule asks for a change, how far it goes, and that only a clear gain is kept."""

import random
from dataclasses import replace

import pytest

from include.care.rocksdb.history import noise
from include.care.rocksdb.profile import Profile, complete_settings
from include.care.rocksdb.trial import MAX_RUNS, MIN_BATCHES, Situation, judge, propose
from include.registry import stream_named
from include.settings import GIB, MIB
from tests.care.rocksdb.made_batches import batch, batches

STREAM = stream_named("user_counts")
NONE_REFUSED: frozenset[tuple[str, bool]] = frozenset()
REWRITES = {"bytes_rewritten": 20 * MIB, "bytes_written": 4 * MIB}
CALM = {"bytes_rewritten": 0, "bytes_written": 4 * MIB}
HUGE = {"rss_bytes": 6 * GIB, "store_memory": 1 * GIB}
FIGURE = "bytes_rewritten"
BEFORE = batches([100, 103, 97, 101, 99, 100, 102, 98])


def situation(
    figures: dict[str, float],
    held: frozenset[str] = frozenset(),
    ceiling: int = 2_048,
    **tuned: str,
) -> Situation:
    settings = {**complete_settings(tuned, STREAM, 64 * GIB), **tuned}
    known = {"rss_bytes": 1 * GIB, "store_memory": 50 * MIB, "logs_replayed": 8.0} | figures
    return Situation(
        profile=Profile(number=1, settings=settings, held=held, verdict="default", reason=""),
        batches=[replace(b, figures={**b.figures, **known}) for b in batches([0] * 5)],
        memory_ceiling_mb=ceiling,
        rss_limit_bytes=4 * GIB,
    )


def change(now: Situation, refused=NONE_REFUSED) -> tuple[str, str] | None:
    proposal = propose(now, refused)
    return None if proposal is None else (proposal.setting, proposal.value)


def test_nothing_is_asked_for_when_batches_rewrite_nothing():
    assert change(situation(CALM)) is None


@pytest.mark.parametrize(
    ("rewritten", "written", "asked"),
    [
        (1 * MIB, 4 * MIB, True),
        (1 * MIB - 1, 4 * MIB, False),  # too few bytes
        (1 * MIB, 4 * MIB + 4, False),  # too small a part
        (100 * MIB, 0, True),
    ],
)
def test_rewriting_counts_from_a_mebibyte_and_a_quarter_on(rewritten, written, asked):
    now = situation({"bytes_rewritten": rewritten, "bytes_written": written})
    assert (change(now) is not None) is asked


def test_the_part_for_writes_comes_first_as_it_costs_nothing():
    assert change(situation(REWRITES)) == ("writeBufferCacheRatio", "0.8")
    assert change(situation(REWRITES, writeBufferCacheRatio="0.8")) == ("maxMemoryUsageMB", "1024")


def test_the_part_for_writes_leaves_room_for_the_other_ratio():
    now = situation(REWRITES, highPriorityPoolRatio="0.3")
    assert change(now) == ("writeBufferCacheRatio", "0.6")
    tight = situation(REWRITES, highPriorityPoolRatio="0.4", writeBufferCacheRatio="0.5")
    assert change(tight) == ("maxMemoryUsageMB", "1024")


def test_memory_goes_no_further_than_machine_and_limit_allow():
    full = {"writeBufferCacheRatio": "0.8"}
    assert change(situation(REWRITES, ceiling=700, **full)) == ("maxMemoryUsageMB", "700")
    # Less than twice as much could not be told from noise.
    assert change(situation(REWRITES, ceiling=511, **full)) is None
    near = REWRITES | {"rss_bytes": 4 * GIB - 300 * MIB}
    assert change(situation(near, **full)) == ("maxMemoryUsageMB", "556")
    assert change(situation(REWRITES | {"rss_bytes": 4 * GIB}, **full)) is None


def test_a_process_above_its_limit_gets_less_memory_before_anything_else():
    now = situation(REWRITES | HUGE, maxMemoryUsageMB="2048")
    assert change(now) == ("maxMemoryUsageMB", "512")
    assert change(replace(now, rss_limit_bytes=6 * GIB)) == ("writeBufferCacheRatio", "0.8")
    assert change(replace(now, rss_limit_bytes=None)) == ("writeBufferCacheRatio", "0.8")


def test_less_memory_stops_at_the_floor():
    assert change(situation(CALM | HUGE, maxMemoryUsageMB="128")) == ("maxMemoryUsageMB", "64")
    assert change(situation(CALM | HUGE, maxMemoryUsageMB="64")) is None


def test_the_state_stores_are_not_blamed_for_a_large_process():
    small = CALM | {"rss_bytes": 6 * GIB, "store_memory": 100 * MIB}
    assert change(situation(small, maxMemoryUsageMB="256")) is None
    # Nor lowered to a limit that they would not reach.
    unused = CALM | {"rss_bytes": 6 * GIB, "store_memory": 700 * MIB}
    assert change(situation(unused, maxMemoryUsageMB="4096")) is None


def test_what_is_held_by_hand_is_passed_over():
    held = frozenset({"writeBufferCacheRatio"})
    assert change(situation(REWRITES, held)) == ("maxMemoryUsageMB", "1024")
    assert change(situation(REWRITES, held | {"maxMemoryUsageMB"})) is None


def test_without_bounded_memory_there_is_nothing_to_tune():
    assert change(situation(REWRITES | HUGE, boundedMemoryUsage="false")) is None


def test_what_was_refused_is_passed_over_in_its_direction_only():
    refused = frozenset({("writeBufferCacheRatio", True)})
    assert change(situation(REWRITES), refused) == ("maxMemoryUsageMB", "1024")
    assert change(situation(REWRITES), refused | {("maxMemoryUsageMB", True)}) is None
    high = situation(REWRITES | HUGE, maxMemoryUsageMB="2048")
    assert change(high, frozenset({("maxMemoryUsageMB", True)})) == ("maxMemoryUsageMB", "512")


def test_a_proposal_says_why_with_figures():
    proposal = propose(situation(REWRITES), NONE_REFUSED)
    assert "20.0 MiB" in proposal.reason
    assert "4.0 MiB" in proposal.reason
    assert proposal.evidence["bytes_rewritten"] == 20 * MIB
    assert (proposal.figure, proposal.before) == ("bytes_rewritten", "0.5")


def verdict(values, before=BEFORE, runs=5, **figures) -> str:
    return judge(batches(values, **figures), before, FIGURE, runs).verdict


def test_it_waits_for_enough_like_batches():
    assert verdict([50] * (MIN_BATCHES - 1)) == "waiting"
    assert verdict([50] * MIN_BATCHES) == "kept"


def test_batches_without_their_like_do_not_count():
    other = [batch(n, 50, logs=500) for n in range(20)]
    judgement = judge(other, BEFORE, FIGURE, runs=20)
    assert (judgement.verdict, f"0 of {MIN_BATCHES}" in judgement.text) == ("waiting", True)


def test_batches_that_had_nothing_to_gain_neither_count_nor_spoil_it():
    idle = [batch(100 + n, 0, logs=500) for n in range(7)]
    assert judge([*idle, *batches([50] * 7)], [*BEFORE, *idle], FIGURE, 14).verdict == "kept"
    assert judge([*idle, *batches([50] * 6)], [*BEFORE, *idle], FIGURE, 13).verdict == "waiting"
    worse = [batch(200, 1, logs=500)]
    assert judge([*worse, *batches([50] * 6)], [*BEFORE, *idle], FIGURE, 7).verdict == "rolled_back"


def test_it_is_given_up_when_none_come():
    assert verdict([50], runs=MAX_RUNS - 1) == "waiting"
    assert verdict([50], runs=MAX_RUNS) == "rolled_back"
    assert verdict([], before=[], runs=MAX_RUNS) == "rolled_back"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([79.9] * 7, "kept"),  # a fifth
        ([81] * 7, "rolled_back"),
        ([100] * 7, "rolled_back"),
        ([300] * 7, "rolled_back"),
        ([0] * 7, "kept"),
        ([70] * 6 + [95], "rolled_back"),  # not without one that hardly gained
        ([70] * 6 + [84], "kept"),
    ],
)
def test_it_is_kept_for_a_fifth_less_in_every_batch(values, expected):
    assert verdict(values) == expected


def test_in_noise_the_gain_must_be_three_times_as_large_as_it():
    noisy = batches([100, 160, 60, 140, 70, 100, 150, 65])
    assert verdict([40] * 7, before=noisy) == "rolled_back"
    assert verdict([20] * 7, before=noisy) == "kept"
    less = batches([100, 115, 88, 112, 90, 100, 110, 92])
    assert verdict([75] * 7, before=less) == "rolled_back"
    assert verdict([65] * 7, before=less) == "kept"


def test_only_the_first_ones_count():
    assert verdict([100] * 7 + [10] * 20) == "rolled_back"
    assert verdict([50] * 7 + [500] * 20) == "kept"


def test_a_gain_in_bytes_does_not_pay_for_a_store_that_is_clearly_slower():
    assert verdict([50] * 7, store_ms=1_400) == "kept"  # clocks are noisy
    assert verdict([50] * 7, store_ms=1_600) == "rolled_back"
    slow_now_and_then = [batch(n, 50, store_ms=ms) for n, ms in enumerate([9_000] * 6 + [900])]
    assert judge(slow_now_and_then, BEFORE, FIGURE, 5).verdict == "kept"


def test_figures_are_in_the_text():
    text = judge(batches([50] * 7), BEFORE, FIGURE, 5).text
    assert "bytes_rewritten -50 % in 7 like batches" in text
    assert "-20 %" in text


def test_a_trial_needs_to_know_the_noise_before_it_begins():
    assert noise(BEFORE, FIGURE) is not None
    assert noise(BEFORE[:7], FIGURE) is None


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.3])
def test_of_a_thousand_trials_without_an_effect_next_to_none_is_kept(sigma):
    rng = random.Random(7)
    kept = 0
    for _ in range(1_000):
        before = batches([rng.lognormvariate(0, sigma) * 1e6 for _ in range(8)])
        trial = batches([rng.lognormvariate(0, sigma) * 1e6 for _ in range(7)])
        kept += judge(trial, before, FIGURE, 5).verdict == "kept"
    assert kept <= 1
